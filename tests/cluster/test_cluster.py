"""A cluster's links and its legality rules."""

import msgspec
import pytest

from trine.cluster.cluster import Cluster, Engine, Link, Shared, Tier, faults
from trine.errors import BadInput, UnknownName

CORE = Engine(
    name="core",
    kind="cpu-core",
    peak_flops_per_s={"float32": 1e11},
    memory_bytes=2**30,
    memory_bandwidth_bytes_per_s=1e10,
)
NEAR, MIDDLE, FAR = (Link(latency_s=t, bandwidth_bytes_per_s=1 / t) for t in (1e-6, 1e-5, 1e-4))


def cluster(num_engines: int, *sizes: int, engine: Engine = CORE) -> Cluster:
    links = (NEAR, MIDDLE, FAR)
    tiers = tuple(Tier(name=str(size), size=size, link=link) for size, link in zip(sizes, links, strict=False))
    return Cluster(name="test", engines=(engine,) * num_engines, tiers=tiers)


def test_link_is_that_of_the_innermost_tier_that_holds_both():
    c = cluster(11, 2, 4, 12)
    assert c.link(0, 1) == NEAR
    assert c.link(1, 2) == MIDDLE
    assert c.link(3, 4) == FAR
    assert c.link(10, 0) == FAR
    assert all(c.link(a, b) == c.link(b, a) for a in range(11) for b in range(11) if a != b)


@pytest.mark.parametrize(
    ("a", "b", "said"), [(0, 4, "engines 0 to 3"), (-1, 0, "engines 0 to 3"), (2, 2, "two different")]
)
def test_a_link_that_is_not_there(a, b, said):
    with pytest.raises(BadInput, match=said):
        cluster(4, 4).link(a, b)


@pytest.mark.parametrize(
    ("num_engines", "sizes", "said"),
    [
        (0, (), "no engine"),
        (2, (), "outermost tier joins 1"),
        (9, (2, 8), "outermost tier joins 8"),
        (4, (2, 3, 6), "larger multiple"),
        (4, (4, 4), "larger multiple"),
        (2, (1, 2), "joins 2 engines or more"),
    ],
)
def test_broken_rules_are_named(num_engines, sizes, said):
    with pytest.raises(BadInput, match=said):
        cluster(num_engines, *sizes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory_bytes": 0}, "memory of 'core'"),
        ({"memory_bandwidth_bytes_per_s": float("inf")}, "memory bandwidth"),
        ({"peak_flops_per_s": {}}, "no arithmetic rate"),
        ({"peak_flops_per_s": {"float33": 1.0}}, "float33"),
        ({"peak_flops_per_s": {"float32": -1.0}}, "float32 rate"),
        ({"launch_s": -1.0}, "launch"),
    ],
)
def test_broken_rules_of_an_engine_are_named(change, said):
    with pytest.raises(BadInput, match=said):
        cluster(1, engine=msgspec.structs.replace(CORE, **change))


def test_shared_rules():
    with pytest.raises(BadInput, match="bandwidth of shared 'bus'"):
        Cluster(name="test", engines=(CORE,), shared=(Shared(name="bus", size=1, bandwidth_bytes_per_s=0),))


def test_one_engine_needs_no_link():
    assert faults(cluster(1)) == []


def test_first_engines_keep_what_joins_them():
    c = cluster(11, 2, 4, 12).first(4)
    assert c.num_engines == 4
    assert c.link(0, 3) == MIDDLE
    with pytest.raises(BadInput, match="It has 4"):
        c.first(5)


def test_a_data_type_without_a_rate_is_named():
    assert CORE.peak("float32") == 1e11
    with pytest.raises(UnknownName, match="float64"):
        CORE.peak("float64")


def test_json_and_back():
    c = cluster(11, 2, 4, 12)
    assert msgspec.json.decode(msgspec.json.encode(c), type=Cluster) == c
