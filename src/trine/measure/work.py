"""The four kinds of work whose rates are measured: matrix product, dense and depthwise convolution, memory stream.

Sizes are those of a real layer (ResNet's second stage, a MobileNetV2 block), small enough to be quick on one slow core,
large enough that starting the operator does not count.  Convolutions are timed in channels-last, the format of tiles.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F

from trine.errors import UnknownName

KINDS = ("matmul", "conv", "depthwise", "stream")
STREAM_BYTES = 32 * 2**20
"""Of each of the three buffers of a stream, so that they do not stay in a cache."""


class Work(NamedTuple):
    """A callable and how much it does in one call: FLOPs, or bytes for a stream."""

    call: Callable[[], torch.Tensor]
    amount: float


def make_work(kind: str, dtype: torch.dtype) -> Work:
    """New tensors and the call on them; every thread needs its own.  Raises UnknownName for an unknown kind."""
    generator = torch.Generator().manual_seed(0)
    if kind == "matmul":
        return _matmul(dtype, generator)
    if kind == "conv":
        return _conv(dtype, generator, channels_in=64, channels=64, groups=1, size=56)
    if kind == "depthwise":
        return _conv(dtype, generator, channels_in=96, channels=96, groups=96, size=56)
    if kind == "stream":
        return _stream(dtype)
    raise UnknownName("kind of work", kind, KINDS)


def _matmul(dtype: torch.dtype, generator: torch.Generator, size: int = 512) -> Work:
    a = torch.randn(size, size, generator=generator).to(dtype)
    b = torch.randn(size, size, generator=generator).to(dtype)
    return Work(lambda: a @ b, 2.0 * size**3)


def _conv(
    dtype: torch.dtype, generator: torch.Generator, *, channels_in: int, channels: int, groups: int, size: int
) -> Work:
    x = torch.randn(1, channels_in, size, size, generator=generator).to(dtype)
    w = torch.randn(channels, channels_in // groups, 3, 3, generator=generator).to(dtype)
    x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    flops = 2.0 * size * size * channels * (channels_in // groups) * 9
    return Work(lambda: F.conv2d(x, w, padding=1, groups=groups), flops)


def _stream(dtype: torch.dtype) -> Work:
    """out = a + b over buffers larger than a cache; counted as STREAM's "add": three buffers' bytes."""
    count = STREAM_BYTES // dtype.itemsize
    a, b, out = torch.ones(count, dtype=dtype), torch.ones(count, dtype=dtype), torch.empty(count, dtype=dtype)
    return Work(lambda: torch.add(a, b, out=out), 3.0 * count * dtype.itemsize)
