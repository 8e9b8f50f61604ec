"""Relations against plain enumeration."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trine.graph.part import Part, contains, from_indices, indices, is_partition, merge, span
from trine.operators.relation import Permuted, Prefix, Regroup, Scaled, Shift, Table, Window

small = st.integers(1, 5)


@st.composite
def a_part(draw: st.DrawFn, length: int) -> Part:
    return merge(
        (low, draw(st.integers(low, length))) for low in draw(st.lists(st.integers(0, length), min_size=1, max_size=3))
    )


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kernel, stride, dilation, pad = draw(small), draw(small), draw(st.integers(1, 3)), draw(st.integers(0, 4))
    reach = dilation * (kernel - 1) + 1
    num_in = draw(st.integers(max(1, reach - 2 * pad), reach + 12))
    return Window(kernel, stride, dilation, pad, num_in, (num_in + 2 * pad - reach) // stride + 1)


@given(windows(), st.data())
def test_a_window_needs_the_tightest_interval(window: Window, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, window.num_range - 1))
    high = data.draw(st.integers(low + 1, window.num_range))
    taps = [
        o * window.stride - window.pad + tap * window.dilation for o in range(low, high) for tap in range(window.kernel)
    ]
    read = [i for i in taps if 0 <= i < window.num_in]
    assert window.needs(span(low, high)) == (span(min(read), max(read) + 1) if read else ())


@given(windows(), st.data())
def test_a_partition_of_the_input_is_followed_by_one_of_the_range(window: Window, data: st.DataObject) -> None:
    edges = sorted(data.draw(st.lists(st.integers(0, window.num_in), min_size=1, max_size=3)))
    cuts = [0, *edges, window.num_in]
    parts = [window.follow(span(a, b)) for a, b in itertools.pairwise(cuts)]
    assert is_partition(parts, window.num_range)


@given(st.data())
def test_a_view_maps_parts_by_row_major_order(data: st.DataObject) -> None:
    sizes = data.draw(st.sampled_from([((4, 6), (6, 4)), ((24,), (2, 3, 4)), ((2, 3, 4), (4, 6)), ((6, 4), (24,))]))
    in_dim, out_dim = (data.draw(st.integers(0, len(s) - 1)) for s in sizes)
    relation = Regroup(sizes[0], in_dim, sizes[1], out_dim)
    part = data.draw(a_part(sizes[1][out_dim]))
    chosen = set(indices(part).tolist())
    numbers = [e for e in range(24) if _coordinate(e, sizes[1], out_dim) in chosen]
    image = {_coordinate(e, sizes[0], in_dim) for e in numbers}
    assert set(indices(relation.needs(part)).tolist()) == image
    is_box = len(numbers) == sum(1 for e in range(24) if _coordinate(e, sizes[0], in_dim) in image)
    assert relation.legal(part) == is_box


def _coordinate(element: int, sizes: tuple[int, ...], dim: int) -> int:
    for n in reversed(sizes[dim + 1 :]):
        element //= n
    return element % sizes[dim]


@given(st.data())
def test_blocks_map_to_blocks(data: st.DataObject) -> None:
    here, there, num = data.draw(small), data.draw(small), data.draw(small)
    relation, part = Scaled(here, there), data.draw(a_part(here * num))
    blocks = {i // here for i in indices(part).tolist()}
    assert relation.needs(part) == merge((b * there, (b + 1) * there) for b in blocks)
    assert contains(relation.follow(relation.needs(part)), part)


def test_other_relations() -> None:
    assert Shift(2, 3, 9).needs(span(0, 4)) == span(0, 2)
    assert Shift(2, 3, 9).follow(span(1, 3)) == span(3, 5)
    assert Shift(-2, 9, 5).needs(span(1, 3)) == span(3, 5)
    assert Permuted((4, 3, 2, 1, 0)).needs(span(0, 2)) == span(3, 5)
    assert Permuted((0, 0, 1, 1)).follow(span(1, 2)) == span(2, 4)
    assert Prefix(7, 5).needs(span(2, 4)) == span(0, 4)
    assert Table((0, 1, 3), (2, 4, 5), 5).needs(span(1, 3)) == span(1, 5)
    assert from_indices(indices(span(2, 4))) == span(2, 4)
