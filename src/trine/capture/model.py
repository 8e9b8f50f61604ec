"""A model as trine takes it: a module, its example inputs, a loss and an optimizer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from trine.capture.inputs import Inputs, resize_inputs
from trine.errors import BadInput

Loss = Callable[[Any, Any], torch.Tensor]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def called(
    module: Callable[..., Any], loss: Loss | None, inputs: Inputs, *, training: bool
) -> tuple[torch.Tensor | None, Any]:
    """The loss (None unless ``training``) and the output of a module; without a loss function the module takes the
    targets and answers with its own loss.  Raises BadInput if it does not."""
    targets = (inputs.targets or {}) if training and loss is None else {}
    output = _registered(module(*inputs.args, **inputs.kwargs, **targets))
    if not training:
        return None, output
    if loss is not None:
        return loss(output, inputs.targets), output
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if own is None:
        raise BadInput(
            "The model has no loss: none was given, and its output has no attribute loss.", "Training needs one.",
            "Give loss=(output, targets) -> tensor.",
        )  # fmt: skip
    return own, output


def _registered(output: Any) -> Any:
    """An output whose dataclasses are known to torch as containers of tensors, as it asks for (register_dataclass)."""
    leaves = pytree.tree_leaves(output)
    unknown = {type(leaf) for leaf in leaves if is_dataclass(leaf) and not isinstance(leaf, (type, torch.Tensor))}
    for kind in unknown:
        pytree.register_dataclass(kind)
    return _registered(output) if unknown else output


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer where none is given."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Model:
    """What the user gave, complete.

    loss: takes the module's output and ``inputs.targets``; None: the module takes the targets as keyword arguments
        and its output has the attribute ``loss``.
    optimizer: takes the parameters.
    weights: where the weights come from, in words, for headers.
    fixed: the module takes inputs of the example's shapes only.
    """

    name: str
    module: nn.Module
    inputs: Inputs
    loss: Loss | None = None
    optimizer: OptimizerFactory = sgd
    seed: int = 0
    weights: str = "random"
    fixed: bool = False

    @property
    def targets(self) -> Any:
        """What the loss compares with."""
        return self.inputs.targets

    @property
    def batch_dims(self) -> dict[str, int | None]:
        """Dimension of the batch for inputs that differ from the rule that it is dimension 0."""
        return self.inputs.batch_dims


def make_model(
    module: nn.Module,
    inputs: Any,
    targets: Any = None,
    loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None,
    batch_dims: dict[str, int | None] | None = None,
    name: str = "",
    seed: int = 0,
    weights: str = "given",
) -> Model:
    """A model from a module that exists; ``inputs`` are one tensor, a tuple of arguments or a dictionary of them."""
    if isinstance(inputs, dict):
        args, kwargs = (), dict(inputs)
    elif isinstance(inputs, (tuple, list)):
        args, kwargs = tuple(inputs), {}
    else:
        args, kwargs = (inputs,), {}
    given = Inputs.of(module, args, kwargs, targets, batch_dims or {}, loss is None)
    given.check()
    return Model(name or type(module).__name__, module, given, loss, optimizer or sgd, seed, weights)


def check_trainable(model: Model) -> None:
    """Raise BadInput for a model in which nothing learns."""
    if not any(parameter.requires_grad for parameter in model.module.parameters()):
        raise BadInput(
            f"{model.name} has nothing to train: no parameter of it takes a gradient.", "",
            "Use it for answers (--scenario cloud or device).",
        )  # fmt: skip


def resized(model: Model, batch: int) -> Model:
    """The model with example inputs of another batch size: random again, the same for the same seed."""
    if model.inputs.batch == batch:
        return model
    if model.fixed:
        raise BadInput(
            f"A batch of {batch} was asked for, and {model.name} was exported with a batch of {model.inputs.batch}.",
            "An exported program is fixed.", "Leave the batch out, or export the model again with that batch.",
        )  # fmt: skip
    return replace(model, inputs=resize_inputs(model.inputs, batch, model.seed))
