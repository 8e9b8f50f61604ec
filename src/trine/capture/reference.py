"""The plain module with trine's random numbers: what a parallel run must equal, dropout included."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from trine.capture.draws import below, random_words
from trine.errors import BadInput

_aten = torch.ops.aten
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class _Counted(TorchDispatchMode):
    """Gives the k-th random draw the numbers of random operator k."""

    def __init__(self, seed: int, step: int, micro_batch: int) -> None:
        super().__init__()
        self.clock = (seed, step, micro_batch)
        self.num_draws = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (_aten.bernoulli_.float, _aten.bernoulli.p):
            drawn = self._dropped(args[0], 1.0 - _probability(func, args, kwargs, 0.5)).logical_not_()
            return args[0].copy_(drawn) if func is _aten.bernoulli_.float else drawn.to(args[0].dtype)
        if func is _aten.native_dropout.default:
            input, p, train = args
            if train is False:
                return input, torch.ones_like(input, dtype=torch.bool)
            kept = self._dropped(input, p).logical_not_()
            return input * kept.to(input.dtype).div_(1.0 - p), kept
        if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, kwargs):
            raise BadInput(
                f"The model draws random numbers by {func}.",
                "Only dropout and other Bernoulli draws can be repeated on tiles.",
                "Switch this randomness off to verify the model.",
            )
        return func(*args, **kwargs)

    def _dropped(self, like: torch.Tensor, p: float) -> torch.Tensor:
        """True where the next operator drops an element, with probability p."""
        words = random_words(*self.clock, self.num_draws, tuple(like.shape), None, like.device)
        self.num_draws += 1
        return below(words, p)


def _probability(func: Any, args: Any, kwargs: Any, default: float) -> float:
    return float(args[1] if len(args) > 1 else kwargs.get("p", default))


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator that can draw does: fused attention with a dropout of zero does not."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in ("dropout_p", "dropout", "training"):
            value = args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
            if not value:
                return False
    return True


class _Wide(TorchDispatchMode):
    """Makes float64 of every narrower floating type that an operator is asked for, and of every narrower tensor that
    meets one in float64: a module in float64 may hold others that are no parameters, as a loss may its weights."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [_widened(item) for item in args]
        kwargs = {key: _widened(item) for key, item in (kwargs or {}).items()}
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not func._schema.is_mutable and any(leaf.dtype == torch.float64 for leaf in leaves):
            args, kwargs = pytree.tree_map(_with_others, (args, kwargs))
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype in _NARROW and not leaves:  # of the default type
            if any(argument.name == "dtype" for argument in func._schema.arguments):
                return func(*args, **{**kwargs, "dtype": torch.float64})
            return result.double()
        return result


def _widened(item: Any) -> Any:
    return torch.float64 if isinstance(item, torch.dtype) and item in _NARROW else item


def _with_others(item: Any) -> Any:
    return item.double() if isinstance(item, torch.Tensor) and item.dtype in _NARROW else item


@contextmanager
def in_float64() -> Iterator[None]:
    """Within it, a module in float64 stays in float64, although its code casts to a narrower type."""
    with _Wide():
        yield


@contextmanager
def counted_random(seed: int, step: int = 0, micro_batch: int = 0) -> Iterator[None]:
    """Within it, the k-th random draw of a forward pass is that of random operator k of the graph."""
    with _Counted(seed, step, micro_batch):
        yield
