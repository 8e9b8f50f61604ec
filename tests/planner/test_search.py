"""The search: never worse with more, the same each time, axes where links are fast, shares where engines are slow."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.outlines import GB, cluster, drawn, fleet
from tests.planner.test_candidates import small_job

from trine.cluster.cluster import Cluster
from trine.cluster.what_if import CHANGES, changed, outer_link
from trine.errors import NothingFits, UnknownName
from trine.graph.graph import Graph
from trine.plan.plan import Axis, Plan
from trine.planner.placement import outside
from trine.planner.refine import with_shares
from trine.planner.search import Found, degrees_up_to, search
from trine.report.wide import Wide, finalists
from trine.run.job import Job

JOB = small_job(8, training=True)


def found_on(seed: int, of: Cluster, graph: Graph, batch: int = 8) -> Found:
    """A search over drawn outlines, the same for every cluster."""

    def outline(axis: Axis | None):
        return drawn(Random(f"{seed} {axis}"), 6, axis)

    return search(graph, outline, fleet(of), batch)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(["engines", "link", "compute", "bandwidth", "memory"]))
def test_more_is_never_worse(seed: int, what: str) -> None:
    random, graph = Random(seed), JOB.graph()
    engines = random.randint(1, 12)
    of = cluster(engines, outside=random.uniform(1, 100) * GB, memory=random.randint(40, 200) * 10**6)
    if what == "engines":
        more = cluster(engines + random.randint(1, 8), outside=of.tiers[0].link.bandwidth_bytes_per_s
                       if of.tiers else GB, memory=of.engines[0].memory_bytes)  # fmt: skip
    else:
        more = changed(of, what, random.uniform(1, 4))
    assert found_on(seed, more, graph).best_s <= found_on(seed, of, graph).best_s * (1 + 1e-9)


def test_a_search_finds_the_same_each_time() -> None:
    one, two = (Wide(small_job(8, training=True), fleet(cluster(8))).search() for _ in range(2))
    assert [(c.degrees, c.axis, c.estimate) for c in one.candidates] == [
        (c.degrees, c.axis, c.estimate) for c in two.candidates
    ]
    assert one.num_estimated == two.num_estimated > 20


def test_one_engine_is_among_the_finalists() -> None:
    found = Wide(JOB, fleet(cluster(8))).search()
    chosen = list(finalists(found))
    assert any(candidate.num_engines == 1 for candidate in chosen)
    assert chosen[0] == found.candidates[0]


def test_a_finalist_becomes_a_plan_that_can_be_compiled() -> None:
    wide = Wide(JOB, fleet(cluster(8)))
    for candidate in finalists(wide.search()):
        plan = wide.plan(candidate, exact=True)
        assert len(JOB.compiled(plan).programs()) == candidate.num_engines
        loose = wide.plan(candidate, exact=False)
        assert msgspec.structs.replace(loose, fingerprint="") == msgspec.structs.replace(plan, fingerprint="")


def test_slow_links_are_outside_of_what_talks_most() -> None:
    """Two hosts of four engines: where the outer link is slow, whatever crosses it talks least."""
    of = cluster(8, inner=4, inside=100 * GB, outside=5 * GB)
    wide = Wide(JOB, fleet(of))
    best = wide.plan(wide.search().candidates[0], exact=False)
    assert "tensor" not in outside(best, 4)


def test_axes_that_cross_groups_are_named() -> None:
    plan = Plan(axes=(Axis("data", 2, "batch"),), stage_starts=("a", "b", "c"))
    assert outside(plan, 4) == ("stages",)
    assert outside(msgspec.structs.replace(plan, stages_at=1), 4) == ("data",)
    assert outside(plan, 8) == ()


def test_shares_go_by_the_slowest_engine_of_a_coordinate() -> None:
    plan = Plan(axes=(Axis("data", 2, "batch"), Axis("tensor", 2, "height")))
    shared = with_shares(plan, [1.0, 1.0, 0.5, 0.25])
    assert shared.axes[0].shares == (1.0, 0.25)
    assert shared.axes[1].shares == (1.0, 0.5)
    assert with_shares(plan, [1.0] * 4) == plan


def test_unequal_engines_get_unequal_shares() -> None:
    wide = Wide(JOB, fleet(cluster(2, speeds=(1.0, 0.5), launch=1e-9)))
    plan = wide.refined(wide.plan(next(c for c in wide.search().candidates if c.degrees.data == 2), exact=False))
    first, second = plan.axes[0].shares
    assert first == 1.0
    assert 0.5 <= second < 0.7  # some of the work is launches, which take as long on both


def test_where_nothing_fits_what_is_missing_is_told() -> None:
    job: Job = small_job(8, training=True)
    with pytest.raises(NothingFits, match="engine 0 needs"):
        Wide(job, fleet(cluster(8, memory=1000))).search()


def test_a_search_keeps_to_its_time() -> None:
    found = Wide(JOB, fleet(cluster(8))).search(budget_s=1e-9)
    assert found.left
    assert found.candidates
    assert all(candidate.axis is None for candidate in found.candidates)


def test_degrees_are_nested() -> None:
    assert degrees_up_to(12) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert set(degrees_up_to(100)) < set(degrees_up_to(1000))


def test_a_changed_cluster_has_what_was_asked() -> None:
    of = cluster(8, inner=4)
    assert changed(of, "link", 2).tiers[1].link.bandwidth_bytes_per_s == 200 * GB
    assert changed(of, "memory", 0.5).engines[0].memory_bytes == 20 * GB
    assert changed(of, "compute", 3).engines[0].peak("float32") == 3e13
    assert outer_link(of, 20).tiers[1].link.bandwidth_bytes_per_s == 5 * GB
    with pytest.raises(UnknownName, match="clock"):
        changed(of, "clock", 2)
    assert len(CHANGES) == 4
