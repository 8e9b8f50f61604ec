"""The loss that goes with a model that brings none: cross-entropy on logits, mean square between equal shapes."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils import _pytree as pytree

from trine.capture.inputs import random_tensor
from trine.capture.mode import in_mode
from trine.capture.traps import line_of, quiet
from trine.errors import BadInput, TrineError, listing

AUXILIARY = 0.4  # weight of the outputs of auxiliary classifiers


def parts(output: Any) -> tuple[Tensor, list[Tensor]]:
    """The main result of a model and those of its auxiliary classifiers."""
    if isinstance(output, Tensor):
        return output, []
    if isinstance(output, Mapping):
        main = next((output[name] for name in ("out", "logits") if name in output), None)
        if main is not None:
            return main, [output[name] for name in ("aux",) if name in output]
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        return output[0], [item for item in output[1:] if isinstance(item, Tensor)]
    raise BadInput(
        f"The model gives a {type(output).__name__}, for which no loss is known.",
        "One is assumed for a tensor, logits with auxiliary ones, or a dictionary with 'out' or 'logits'.",
        "Give the model as file.py:callable that returns a dictionary with a loss.",
    )


def assumed_loss(output: Any, targets: Tensor) -> Tensor:
    """Mean square for floating targets; else cross-entropy with classes in dimension 1; auxiliary results count 0.4."""
    main, others = parts(output)
    one = functional.mse_loss if targets.is_floating_point() else functional.cross_entropy
    loss = one(main, targets)
    for other in others:
        loss = loss + AUXILIARY * one(other, targets)
    return loss


def assumed_targets(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Tensor:
    """Random targets for the assumed loss; shapes come from a run without data if that can be.  Raises BadInput where
    the module does not run on these arguments."""
    is_meta = any(parameter.is_meta for parameter in module.parameters())
    mode: Any = nullcontext() if is_meta else FakeTensorMode(allow_non_fake_inputs=True)
    change = (lambda t: t.to("meta")) if is_meta else mode.from_tensor
    fake = pytree.tree_map_only(torch.Tensor, change, (args, kwargs))
    try:
        try:
            with in_mode(module, False), mode, torch.no_grad(), quiet():
                main, _ = parts(module(*fake[0], **fake[1]))
        except RuntimeError:  # it decides by its data
            if is_meta:
                raise
            with in_mode(module, False), torch.no_grad():
                main, _ = parts(module(*args, **kwargs))
    except (TrineError, MemoryError):
        raise
    except Exception as error:  # whatever the module's own code raises
        shapes = [tuple(t.shape) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        said, line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip("."), line_of(error)
        raise BadInput(
            f"The module does not run on inputs of shape {listing(shapes)}: {said}{f' ({line})' if line else ''}.", "",
            "Give another size or other inputs.",
        ) from error  # fmt: skip
    shape = tuple(main.shape)
    first = next(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
    if shape == tuple(first.shape) or len(shape) < 2:
        return random_tensor(shape, main.dtype, 0, 0, seed)
    return random_tensor((shape[0], *shape[2:]), torch.int64, 0, shape[1], seed)
