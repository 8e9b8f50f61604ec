"""Random layouts of a small tensor on a mesh of two axes."""

import numpy as np
from hypothesis import strategies as st

from trine.graph.part import Part, from_indices, union
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, State

SHAPE = (5, 4, 3)
SIZES = (2, 3)


@st.composite
def partitions(draw: st.DrawFn, length: int, size: int) -> tuple[Part, ...]:
    """Every index to one coordinate; in blocks, with empty parts, in any order."""
    owner = np.asarray(draw(st.lists(st.integers(0, size - 1), min_size=length, max_size=length)))
    if draw(st.booleans()):
        owner = np.sort(owner)
    return tuple(from_indices(np.flatnonzero(owner == c)) for c in range(size))


@st.composite
def states(draw: st.DrawFn, size: int, *, overlapping: bool, partial: bool) -> State:
    """How one axis of this size treats the tensor."""
    kind = draw(st.sampled_from(["whole", "split", "split", *(["partial"] if partial else [])]))
    if kind != "split":
        return PARTIAL if kind == "partial" else WHOLE
    dim = draw(st.integers(0, len(SHAPE) - 1))
    parts = draw(partitions(SHAPE[dim], size))
    if overlapping and draw(st.booleans()):
        more = draw(partitions(SHAPE[dim], size))
        parts = tuple(union(a, b) for a, b in zip(parts, more, strict=True))
    return Split(dim, parts)


@st.composite
def layouts(draw: st.DrawFn, *, overlapping: bool, partial: bool) -> Layout:
    """One state for each axis; a dimension is cut by one axis at most."""
    found = tuple(draw(states(size, overlapping=overlapping, partial=partial)) for size in SIZES)
    dims = [state.dim for state in found if isinstance(state, Split)]
    return found if len(set(dims)) == len(dims) else (found[0], WHOLE)
