"""Laws of what links reach, and the measurements that it comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cluster.presets import PRESETS, preset
from trine.cost.links import REACHED, wires

names = st.sampled_from([name for name in PRESETS if PRESETS[name].tiers])
sizes = st.floats(1, 1e11)


@given(names, sizes)
def test_one_rank_needs_no_time(name: str, size: float):
    assert wires(preset(name)).all_reduce_s(size, 1) == wires(preset(name)).gather_s(size, 1) == 0


@given(names, sizes, st.integers(1, 8), st.integers(1, 64), st.floats(1, 100))
def test_more_bytes_are_never_faster(name: str, size: float, within: int, across: int, more: float):
    known = wires(preset(name))
    for time in (known.all_reduce_s, known.gather_s):
        assert time(size * more, within, across) >= time(size, within, across) * (1 - 1e-9)


@given(names, sizes, st.integers(1, 8), st.integers(2, 64))
def test_a_node_is_no_slower_than_many(name: str, size: float, within: int, across: int):
    known = wires(preset(name))
    assert known.all_reduce_s(size, within) <= known.all_reduce_s(size, within, across)
    assert known.gather_s(size, within) <= known.gather_s(size, within, across)


@given(names, sizes, st.integers(2, 8))
def test_an_all_reduce_is_a_scatter_and_a_gather(name: str, size: float, within: int):
    known = wires(preset(name))
    twice = 2 * known.gather_s(size, within)
    assert known.all_reduce_s(size, within) == pytest.approx(twice - known.reach.start_s)


def test_every_family_says_where_its_numbers_are_from():
    assert all("MIT" in reach.source or "BSD-3" in reach.source for reach in REACHED.values())
    assert {name.split("-")[0] for name in PRESETS} >= set(REACHED)
