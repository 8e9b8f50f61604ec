"""Boxes of a partition cover a tensor once; narrowing is containment."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.draw import SHAPE, SIZES, layouts, partitions

from trine.graph.part import Part, contains, even, indices, is_partition, volume
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
@given(layouts(overlapping=True, partial=False), layouts(overlapping=True, partial=False))
def test_what_narrows_is_contained(have: Layout, want: Layout) -> None:
    if all(map(narrows, have, want)):
        for coords in COORDS:
            outer, inner = box(have, SHAPE, coords), box(want, SHAPE, coords)
            assert volume(inner) == 0 or all(map(contains, outer, inner))


def test_what_does_not_narrow() -> None:
    left, right = Split(0, (((0, 2),), ((2, 5),))), Split(0, (((0, 3),), ((3, 5),)))
    assert not narrows(left, right)
    assert not narrows(left, WHOLE)
    assert not narrows(left, Split(1, left.parts))
    assert not narrows(PARTIAL, left)
    assert narrows(WHOLE, left)


@settings(derandomize=True, deadline=None)
@given(partitions(7, 3))
def test_parts_that_overlap_or_leave_something_out_are_no_cut(parts: tuple[Part, ...]) -> None:
    assert is_cut(Split(0, parts), 7)
    assert not is_cut(Split(0, (*parts, ((6, 7),))), 7)
    assert not is_cut(Split(0, parts), 8)
