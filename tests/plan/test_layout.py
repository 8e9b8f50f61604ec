"""Boxes of a partition cover a tensor once; narrowing is containment."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.draw import SHAPE, SIZES, layouts, partitions

from trine.graph.part import even, indices, is_partition, volume
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, box, is_cut, narrows

COORDS = [(i, j) for i in range(SIZES[0]) for j in range(SIZES[1])]


@settings(derandomize=True, deadline=None)
@given(layouts(overlapping=False, partial=False))
def test_boxes_of_a_partition_cover_each_element_as_often_as_it_is_whole(layout: Layout) -> None:
    count = np.zeros(SHAPE, np.int64)
    for coords in COORDS:
        count[np.ix_(*(indices(part) for part in box(layout, SHAPE, coords)))] += 1
    assert (count == prod(n for n, state in zip(SIZES, layout, strict=True) if state == WHOLE)).all()


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 40), st.lists(st.floats(0.1, 9), min_size=1, max_size=5), st.integers(1, 3))
def test_shares_make_a_partition(length: int, shares: list[float], blocks: int) -> None:
    length -= length % blocks
    parts = even(length, shares, blocks)
    assert is_partition(parts, length)
    assert is_cut(Split(0, parts), length)


@settings(derandomize=True, deadline=None)
@given(layouts(overlapping=True, partial=True), layouts(overlapping=True, partial=True))
def test_what_narrows_is_contained(have: Layout, want: Layout) -> None:
    for axis, (a, b) in enumerate(zip(have, want, strict=True)):
        alone_a = tuple(a if i == axis else WHOLE for i in range(len(SIZES)))
        alone_b = tuple(b if i == axis else WHOLE for i in range(len(SIZES)))
        inside = all(
            set(np.ndindex(SHAPE)) >= set(_elements(alone_a, c)) >= set(_elements(alone_b, c)) for c in COORDS
        )
        if narrows(a, b) and a != PARTIAL:
            assert inside
        if PARTIAL not in (a, b) and isinstance(a, Split) and isinstance(b, Split) and a.dim == b.dim:
            assert narrows(a, b) == inside or not all(volume(box(alone_b, SHAPE, c)) for c in COORDS)
    assert all(narrows(WHOLE, state) for state in want if state != PARTIAL)


def _elements(layout: Layout, coords: tuple[int, ...]) -> list[tuple[int, ...]]:
    grid = np.meshgrid(*(indices(part) for part in box(layout, SHAPE, coords)), indexing="ij")
    return list(zip(*(axis.ravel().tolist() for axis in grid), strict=True))


@settings(derandomize=True, deadline=None)
@given(partitions(7, 3))
def test_a_part_that_two_have_is_no_cut(parts: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    assert is_cut(Split(0, parts), 7)
    assert not is_cut(Split(0, (*parts[:-1], ((0, 7),))), 7) or parts[-1] == ((0, 7),)
