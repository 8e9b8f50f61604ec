"""Layouts: where a tensor's elements are, for each mesh axis.

A :data:`State` says how one axis treats a tensor: ``WHOLE`` (every coordinate has all of it), :class:`Split` (each
coordinate has a part of one dimension; parts may overlap or be empty) or ``PARTIAL`` (the coordinates' tensors must
be added).  A layout is one state for each axis; the box of an engine is computed from it, never stored.

The layout of a gradient is the dual of its value's: split stays split, whole and overlapping become partial.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from trine.graph.part import Box, Part, contains, full, intersect, is_partition


class Split(msgspec.Struct, frozen=True):
    """Coordinate c of the axis has ``parts[c]`` of dimension ``dim``."""

    dim: int
    parts: tuple[Part, ...]


State = Split | Literal["whole", "partial"]
WHOLE: Literal["whole"] = "whole"
PARTIAL: Literal["partial"] = "partial"
Layout = tuple[State, ...]


def box(layout: Layout, shape: Sequence[int], coords: Sequence[int]) -> Box:
    """The box of the engine at these coordinates (one per axis); a scalar has the empty box ``()``."""
    result = list(full(shape))
    for state, coord in zip(layout, coords, strict=True):
        if isinstance(state, Split):
            result[state.dim] = intersect(result[state.dim], state.parts[coord])
    return tuple(result)


def narrows(have: State, want: State) -> bool:
    """Whether every coordinate can make ``want`` from its own ``have`` without talking."""
    if have == want:
        return True
    if not isinstance(want, Split) or have == PARTIAL:
        return False
    if have == WHOLE:
        return True
    assert isinstance(have, Split)
    return have.dim == want.dim and all(contains(p, q) for p, q in zip(have.parts, want.parts, strict=True))


def is_cut(state: State, length: int) -> bool:
    """Whether the state is a split into disjoint parts that together are everything."""
    return isinstance(state, Split) and is_partition(state.parts, length)
