"""Operator families: how each operator may be cut, and what a piece of it runs."""

from trine.operators import (  # noqa: F401  (each file enters its families)
    attention,
    convolution,
    einsum,
    elementwise,
    factory,
    joining,
    linear,
    lookup,
    loss,
    norm,
    pooling,
    random,
    rearrange,
    recurrent,
    reduction,
    resample,
    scatter,
    taking,
)
