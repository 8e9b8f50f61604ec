"""Random numbers named by where they stand: seed, step, micro-batch, operator and *global* element number.

A piece of a tensor therefore draws what the whole would.  The draw is an integer hash (three rounds of a murmur-like
finalizer with two keys), cheaper than torch's own generator.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

Box = Sequence[Sequence[Sequence[int]]]  # for each dimension its half-open intervals
_WORD = 0xFFFFFFFF


def keys(seed: int, step: int, micro_batch: int, index: int) -> tuple[int, int]:
    """Two 32-bit keys of a random operator at a time (splitmix64 over the four numbers)."""
    state = 0
    for number in (seed, step, micro_batch, index):
        state = (state + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state & _WORD, state >> 32


def _signed(word: int) -> int:
    """A 32-bit word as the int32 with the same bits."""
    return word - (1 << 32) if word & 0x80000000 else word


def element_numbers(shape: Sequence[int], box: Box | None, device: Any = None) -> Tensor:
    """Row-major number of each element of the box within the whole tensor: int32 while it fits, else int64."""
    dtype = torch.int32 if prod(shape) < 1 << 31 else torch.int64
    numbers = torch.zeros((1,) * len(shape), dtype=dtype, device=device)
    if box is None:
        return torch.arange(prod(shape), dtype=dtype, device=device).view(tuple(shape))
    for dim, part in enumerate(box):
        pieces = [torch.arange(low, high, dtype=dtype, device=device) for low, high in part]
        along = torch.cat(pieces) if pieces else torch.empty(0, dtype=dtype, device=device)
        view = [-1 if d == dim else 1 for d in range(len(shape))]
        numbers = numbers + (along * prod(shape[dim + 1 :])).view(view)
    return numbers


def random_words(
    seed: int, step: int, micro_batch: int, index: int, shape: Sequence[int], box: Box | None = None, device: Any = None
) -> Tensor:
    """A uniform int32 for each element of the box (default: of the whole shape)."""
    first, second = keys(seed, step, micro_batch, index)
    word = element_numbers(shape, box, device)
    if word.dtype == torch.int64:
        high = (word >> 32).to(torch.int32)
        word = ((word + (1 << 31)) & _WORD).sub_(1 << 31).to(torch.int32)
        word ^= high * _signed(0x9E3779B1)
    word ^= _signed(first)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 0x2C1B3C6D)):
        word ^= (word >> shift).bitwise_and_((1 << (32 - shift)) - 1)
        word *= _signed(factor)
        word += _signed(second)
    word ^= (word >> 16).bitwise_and_(0xFFFF)
    return word


def uniform_hash(
    seed: int,
    step: int,
    micro_batch: int,
    index: int,
    shape: Sequence[int],
    part: Box | None = None,
    device: Any = None,
) -> Tensor:
    """A float64 in [0, 1) for each element of the box ``part`` of a tensor of this shape."""
    return (random_words(seed, step, micro_batch, index, shape, part, device).double() + (1 << 31)) / (1 << 32)


def below(words: Tensor, p: float) -> Tensor:
    """True with probability p: where the uniform number is below it (to 2^-32)."""
    threshold = min(max(round(p * (1 << 32)), 0), 1 << 32) - (1 << 31)
    if threshold > (1 << 31) - 1:
        return torch.ones_like(words, dtype=torch.bool)
    return words < threshold
