"""Dropout and Bernoulli draws for a tile: a piece draws what the whole would.

The numbers are those of ``capture/draws.py``; the clock (``clock.py``) holds seed, step and micro-batch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trine.capture.draws import Box, below, random_words
from trine.lower.clock import clock
from trine.lower.registry import kernel


class _Dropout(torch.autograd.Function):
    """Keeps one byte an element for the backward pass."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dropped: Tensor, scale: float) -> Tensor:
        kept = dropped.logical_not()
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (input * kept).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (kept,) = ctx.saved_tensors
        return (grad * kept).mul_(ctx.scale), None, None


@kernel
def dropout(input: Tensor, p: float, index: int, shape: Sequence[int] | None = None, box: Box | None = None) -> Tensor:
    """The input, or the piece ``box`` of a whole of ``shape``, with elements dropped with probability p."""
    now = clock()
    whole = tuple(input.shape) if shape is None else tuple(shape)
    words = random_words(now.seed, now.step, now.micro_batch, index, whole, box, input.device)
    scale = float(torch.ones((), dtype=input.dtype).div_(1.0 - p))
    result: Tensor = _Dropout.apply(input, below(words, p), scale)
    return result


@kernel
def bernoulli(
    shape: Sequence[int], p: float, index: int, dtype: torch.dtype, box: Box | None = None, device: Any = None
) -> Tensor:
    """Ones with probability p, else zeros; the whole shape or a piece of it."""
    now = clock()
    words = random_words(now.seed, now.step, now.micro_batch, index, tuple(shape), box, device)
    return below(words, 1.0 - p).logical_not_().to(dtype)
