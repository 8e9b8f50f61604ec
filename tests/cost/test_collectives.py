"""Laws of the alpha-beta formulas, and figures that others published."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cluster.cluster import Cluster, Engine, Link, Tier
from trine.cluster.presets import PRESETS
from trine.cost.collectives import (
    OPERATIONS,
    best_s,
    bytes_in_all,
    bytes_per_rank,
    from_table,
    halo_s,
    over_cluster_s,
    ring_s,
)
from trine.cost.profile import LinkTable
from trine.errors import BadInput, UnknownName

links = st.builds(Link, latency_s=st.floats(0, 1e-3), bandwidth_bytes_per_s=st.floats(1e6, 1e12))
operations = st.sampled_from(OPERATIONS)
ranks, sizes = st.integers(2, 600), st.floats(0, 1e12)
CORE = Engine(
    name="core",
    kind="cpu-core",
    peak_flops_per_s={"float32": 1e11},
    memory_bytes=2**30,
    memory_bandwidth_bytes_per_s=1e10,
)
SLACK = 1 + 1e-9


@st.composite
def groups(draw):
    """A cluster of two or three tiers and some of its engines."""
    factors = draw(st.lists(st.integers(2, 4), min_size=2, max_size=3))
    tiers, size = [], 1
    for factor in factors:
        size *= factor
        tiers.append(Tier(name=f"of {size}", size=size, link=draw(links)))
    engines = draw(st.lists(st.integers(0, size - 1), min_size=2, unique=True))
    return Cluster(name="drawn", engines=(CORE,) * size, tiers=tuple(tiers)), engines


def faster(cluster: Cluster, latency: float, bandwidth: float) -> Cluster:
    tiers = tuple(
        msgspec.structs.replace(
            tier,
            link=Link(
                latency_s=tier.link.latency_s * latency,
                bandwidth_bytes_per_s=tier.link.bandwidth_bytes_per_s * bandwidth,
            ),
        )
        for tier in cluster.tiers
    )
    return msgspec.structs.replace(cluster, tiers=tiers)


@given(operations, ranks, sizes, links, st.floats(1, 100))
def test_a_better_link_is_never_slower(operation, num_ranks, size, link, factor):
    time_s = best_s(operation, num_ranks, size, link)
    twice = msgspec.structs.replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)
    quick = msgspec.structs.replace(link, latency_s=link.latency_s / factor)
    assert best_s(operation, num_ranks, size, twice) <= time_s * SLACK
    assert best_s(operation, num_ranks, size, quick) <= time_s * SLACK


@given(operations, groups(), sizes, st.floats(1, 100))
def test_better_links_of_a_cluster_are_never_slower(operation, group, size, factor):
    cluster, engines = group
    time_s = over_cluster_s(operation, cluster, engines, size)
    assert over_cluster_s(operation, faster(cluster, 1, factor), engines, size) <= time_s * SLACK
    assert over_cluster_s(operation, faster(cluster, 1 / factor, 1), engines, size) <= time_s * SLACK
    assert over_cluster_s(operation, cluster, engines, size * factor) * SLACK >= time_s


@given(operations, ranks, st.integers(0, 10**12), links)
def test_no_faster_than_the_bytes_allow(operation, num_ranks, size, link):
    least = bytes_per_rank(operation, num_ranks, size) / link.bandwidth_bytes_per_s
    assert best_s(operation, num_ranks, size, link) * SLACK >= least


@given(operations, st.integers(2, 8), sizes, links)
def test_a_cluster_of_one_kind_of_link_is_that_link(operation, num_ranks, size, link):
    flat = Cluster(name="flat", engines=(CORE,) * num_ranks, tiers=(Tier(name="all", size=num_ranks, link=link),))
    assert over_cluster_s(operation, flat, range(num_ranks), size) == best_s(operation, num_ranks, size, link)


@given(operations, sizes, links)
def test_one_rank_says_nothing(operation, size, link):
    if operation != "p2p":
        assert bytes_in_all(operation, 1, int(size)) == 0
    assert ring_s(operation, 1, size, link) == 0


@given(st.integers(1, 64), st.integers(0, 10**9))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(num_ranks, size):
    parts = bytes_in_all("reduce_scatter", num_ranks, size) + bytes_in_all("all_gather", num_ranks, size)
    assert bytes_in_all("all_reduce", num_ranks, size) == parts


@given(links, st.integers(2, 64), sizes)
def test_as_times_go(link, num_ranks, size):
    parts = ring_s("reduce_scatter", num_ranks, size, link) + ring_s("all_gather", num_ranks, size, link)
    assert ring_s("all_reduce", num_ranks, size, link) == pytest.approx(parts)


def test_large_messages_across_nodes_go_in_a_hierarchy():
    """4 x 8 GPUs: with one adapter a GPU, the network carries 2 (N-1)/N S/g a rank."""
    c = PRESETS["a100-80gb"].times(32)
    size = 4 * 2**30
    network = 2 * 3 / 4 * size / 8 / 25e9
    time_s = over_cluster_s("all_reduce", c, range(32), size)
    assert network < time_s < 1.5 * (network + 2 * 7 / 8 * size / 300e9)


def test_engines_that_share_a_node_use_their_links_side_by_side():
    c = PRESETS["a100-80gb"].times(16)
    together = over_cluster_s("all_gather", c, [*range(4), *range(8, 12)], 2**30)
    alone = over_cluster_s("all_gather", c, [0, 8], 2**30)
    assert together < alone


def test_all_reduce_of_an_emulated_cluster():
    """Three processes on 1 Gbit/s: 16 MB took 178 ms where the ring gives 170 to 180."""
    link = Link(latency_s=1e-3, bandwidth_bytes_per_s=125e6)
    assert ring_s("all_reduce", 3, 16e6, link) == pytest.approx(0.178, rel=0.06)


def test_a_halo_goes_to_each_neighbour():
    link = Link(latency_s=1.0, bandwidth_bytes_per_s=10.0)
    assert halo_s(20, link) == 6.0
    assert halo_s(20, link, num_neighbours=1) == 3.0


@given(st.sampled_from(["p2p", "all_reduce", "all_gather"]), st.floats(1, 1e9), st.integers(2, 64))
def test_a_table_holds_where_it_was_measured_and_grows_with_ranks(operation, size, num_ranks):
    table = LinkTable(num_ranks=2, sizes_bytes=(1000, 1_000_000), times_s=(1e-4, 1e-2))
    assert from_table(operation, 2, size, table) == pytest.approx(table.time_s(size))
    more = from_table(operation, num_ranks + 1, size, table)
    assert more * SLACK >= from_table(operation, num_ranks, size, table)


def test_faults():
    link = Link(latency_s=0, bandwidth_bytes_per_s=1)
    with pytest.raises(UnknownName, match="all_reduce"):
        ring_s("all_redcue", 2, 1, link)
    with pytest.raises(BadInput, match="0 bytes or more"):
        ring_s("p2p", 2, -1, link)
    c = PRESETS["l4"].times(4)
    with pytest.raises(BadInput, match="no engine twice"):
        over_cluster_s("all_reduce", c, [0, 0, 1], 1)
    with pytest.raises(BadInput, match="no engine 9"):
        over_cluster_s("all_reduce", c, [0, 9], 1)
