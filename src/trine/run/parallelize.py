"""``parallelize``: a module that is used as the original and runs by a plan, on threads of this process or on the
processes that are there."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trine.capture.export import Captured, capture
from trine.capture.inputs import Inputs
from trine.capture.model import Loss, Model, make_model
from trine.capture.traps import plain_values
from trine.errors import BadInput, UnknownName
from trine.graph.graph import Graph
from trine.plan.file import Answer, given_plan
from trine.plan.plan import Plan
from trine.run.crew import Crew, OwnThreads, TheirProcesses
from trine.run.differentiable import Call, Through
from trine.run.fit import Fit, fit
from trine.run.form import Form

PLAIN = (bool, int, float, str, type(None))
CREWS: dict[str, type[Crew]] = {"threads": OwnThreads, "joined": TheirProcesses}


def parallelize(
    module: nn.Module, plan: Plan | Answer | Path | str, *, inputs: Any, loss: Loss | None = None, targets: Any = None,
    batch_dims: dict[str, int | None] | None = None, on: str | None = None,
) -> nn.Module:  # fmt: skip
    """A module with the parameters and buffers of the original that computes by the plan.

    plan: what ``trine.plan`` answers, a plan, or the file of one.
    inputs: example inputs, for which the plan was made: a tensor, a tuple of arguments or a dictionary of them.
    loss, targets: those of the plan, if it was made for training with a loss; the plan is then held against the whole
        graph, else against the model's inputs.
    batch_dims: argument → its batch dimension, None if it has none; else it is 0.
    on: threads of this process; or joined, the processes that are there, each of which calls the same with the same
        whole tensors and gets the whole results and gradients.  By default joined under ``torchrun``, else threads.

    Parameters are the very same, so ``state_dict``, ``torch.optim``, ``train`` and ``eval`` work as before.  Inputs of
    other shapes and the other mode are captured when they first come.  A copy or a pickle is a parallel module of its
    own.  Raises PlanMismatch for a plan of another model, CaptureFailed where the module has no graph.
    """
    plan = given_plan(plan)
    on = on or ("joined" if dist.is_torchelastic_launched() else "threads")
    if on not in CREWS:
        raise UnknownName("runtime", on, CREWS)
    model = make_model(module, inputs, targets, loss, batch_dims=batch_dims, name=plan.model)
    found = fit(plan, model, with_loss=loss is not None or targets is not None)
    return Parallel(module, found, dict(batch_dims or {}), on)


class Parallel(nn.Module):
    """See :func:`parallelize`.  It shares the original's dictionaries of parameters, buffers and submodules."""

    def __init__(self, module: nn.Module, found: Fit, batch_dims: dict[str, int | None], on: str) -> None:
        training = module.training
        self.__dict__["_original"] = module
        super().__init__()
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[shared] = module.__dict__[shared]
        module.training = training
        own: dict[str, Any] = self.__dict__
        own["_found"], own["_batch_dims"] = found, batch_dims
        own["_captures"], own["_forms"], own["_on"], own["_crew"] = {}, {}, on, CREWS[on]()
        weakref.finalize(self, self._crew.close)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The original's mode."""
        return bool(self.__dict__["_original"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["_original"].training = mode

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's results, with gradients to its parameters and to inputs that ask for them."""
        if self.training and self._found.plan.micro_batches > 1:
            raise self._streams("A forward pass in training")
        key, leaves = self._key(args, kwargs)
        captured, plan, batch = self._captured(key, args, kwargs)
        given = {name: leaves[number] for name, number in captured.leaves.items()}
        state = captured.state(self._original)
        wanted = _wanted(captured.graph, state, given)
        if (key, wanted) not in self._forms:
            self._forms[key, wanted] = Form(captured, plan, batch, wanted)
        form = self._forms[key, wanted]
        if form.leaves and self._found.plan.micro_batches > 1:
            raise self._streams("A forward pass with gradients")
        call = Call(self, self._crew, form)
        known = {**state, **given}
        plain = {name: value.detach() for name, value in known.items()}
        arguments = ({name: plain[name] for name in given}, captured.graph.batch_dims, plain)
        if form.leaves:
            outputs = Through.apply(call, arguments, *(known[name] for name in form.leaves))
        else:
            outputs = call.forward(*arguments)
        with torch.no_grad():
            for name, value in call.buffers.items():
                state[name].copy_(value)
        return captured.unflatten({**known, **dict(zip(form.outputs, outputs, strict=True))})

    def _streams(self, what: str) -> BadInput:
        return BadInput(
            f"{what} was asked for under a plan with {self._found.plan.micro_batches} micro-batches.",
            "They stream forward and backward at once, so that there is no backward() to wait for.",
            "Use trine.train_step(module, plan, …), torch.no_grad() in evaluation, or a plan with one micro-batch.",
        )

    def _key(self, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
        """What a capture holds for: modules with their modes and plain attributes, shapes, types, gradients or none;
        and the leaves of the arguments."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        own = [*self._original.parameters(), *self._original.buffers()]
        key = (
            tuple((id(part), part.training, *plain_values(part).items()) for part in self._original.modules()),
            str(structure), tuple(map(_sort, leaves)),
            tuple((tuple(value.shape), value.dtype) for value in own),
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
            torch.is_grad_enabled(),
        )  # fmt: skip
        return key, leaves

    def _captured(self, key: Any, args: Any, kwargs: Any) -> tuple[Captured, Plan, int]:
        """The capture for such inputs, the plan for its graph, and the batch."""
        if key not in self._captures:
            inputs = Inputs.of(self._original, args, kwargs, None, {}, False)
            known = {name for name, _ in inputs.groups()}
            dims = {name: dim for name, dim in self._batch_dims.items() if name in known}
            inputs = replace(inputs, batch_dims=dims)
            inputs.check()
            model = Model(self._found.graph.name, self._original, inputs)
            differentiable = self.training or torch.is_grad_enabled()
            captured = capture(model, training=self.training, with_loss=False, differentiable=differentiable)
            self._captures[key] = (captured, self._found.on(captured.graph), inputs.batch)
        return self._captures[key]

    def train(self, mode: bool = True) -> "Parallel":
        """Set the original's mode."""
        self._original.train(mode)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The original's."""
        return self._original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load into the original."""
        return self._original.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._original._load_from_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set it on the original; what was captured no longer holds."""
        setattr(self.__dict__["_original"], name, value)
        self._captures.clear()
        self._forms.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return Parallel, (self._original, self._found, self._batch_dims, self._on)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"Parallel({self._found.plan.describe()}): {self._original!r}"


def _sort(leaf: Any) -> Any:
    """What of an argument a capture depends on."""
    if isinstance(leaf, Tensor):
        return tuple(leaf.shape), leaf.dtype
    return type(leaf), leaf if isinstance(leaf, PLAIN) else id(leaf)


def _wanted(graph: Graph, state: dict[str, Tensor], given: dict[str, Tensor]) -> tuple[str, ...]:
    """Parameters and inputs whose gradients are wanted now."""
    if not torch.is_grad_enabled():
        return ()
    kinds = {name: graph.tensors[name].kind for name in (*state, *given)}
    values = {**state, **given}
    return tuple(n for n, v in values.items() if v.requires_grad and kinds[n] in ("parameter", "input"))
