"""Estimates: near what is simulated, and stages cut as well as they can be."""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.outlines import cluster, drawn, fleet
from tests.planner.test_candidates import small_job

from trine.cost.segments import AnalyticCosts
from trine.planner.estimate import MOST_DIVISIONS, Degrees, Estimator
from trine.planner.predict import predict
from trine.planner.search import Candidate
from trine.report.wide import Wide

laws = settings(derandomize=True, deadline=None)


@laws
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(2, 6), st.integers(1, 4))
def test_few_divisions_are_all_looked_at(seed: int, stages: int, units: int, micro_batches: int) -> None:
    if stages > units:
        return
    estimator = Estimator(drawn(Random(seed), units), fleet(cluster(stages)))
    degrees = Degrees(1, stages, 2, micro_batches)
    pace = estimator.pace(degrees)
    every = [estimator.at(degrees, pace, starts).time_s for starts in combinations(range(1, units), stages - 1)]
    found = estimator.estimate(degrees)
    assert found is not None
    assert found.time_s == min(every)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_of_many_divisions_the_slowest_stage_is_least(seed: int, stages: int) -> None:
    units = 40 if stages == 2 else 14
    estimator = Estimator(drawn(Random(seed), units), fleet(cluster(stages, speeds=(1.0, 0.5))))
    degrees = Degrees(1, stages, 2, 4)
    pace = estimator.pace(degrees)
    running = np.concatenate(([0.0], np.cumsum(pace.units)))

    def slowest(starts: tuple[int, ...]) -> float:
        edges = (0, *starts, units)
        return max((running[b] - running[a]) / v for a, b, v in zip(edges, edges[1:], pace.speeds, strict=False))

    found = estimator._cut(degrees, pace, float("inf"))
    assert found is not None
    best = min(slowest(starts) for starts in combinations(range(1, units), stages - 1))
    assert slowest(found) <= best * (1 + 1e-4)
    assert MOST_DIVISIONS < 10_000


@laws
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 4), st.integers(1, 8))
def test_work_alone_is_a_lower_bound(seed: int, data: int, stages: int, micro_batches: int) -> None:
    estimator = Estimator(drawn(Random(seed), 8), fleet(cluster(16, speeds=(1.0, 0.7))))
    degrees = Degrees(data, stages, 2, micro_batches)
    found = estimator.estimate(degrees)
    assert found is not None
    assert estimator.bound_s(degrees) <= found.time_s * (1 + 1e-9)


def test_a_stage_that_has_no_room_is_not_found() -> None:
    outline = drawn(Random(0), 8)
    estimator = Estimator(outline, fleet(cluster(2, memory=int(outline.resting.sum()))))
    assert estimator.estimate(Degrees(1, 1, 1, 1)) is None
    estimator.room_bytes *= 6
    assert estimator.estimate(Degrees(1, 1, 1, 1)) is not None


@pytest.mark.parametrize(
    "degrees", [Degrees(1, 1, 4, 1), Degrees(2, 1, 2, 1), Degrees(1, 2, 1, 4), Degrees(2, 2, 1, 2)]
)
def test_estimates_are_near_what_is_simulated(degrees: Degrees) -> None:
    """Where work is more than launches and messages."""
    job, engines = small_job(4, training=True), cluster(4)
    wide = Wide(job, fleet(engines))
    found = Estimator(wide.outline(None), wide.fleet).estimate(degrees)
    assert found is not None
    plan = wide.plan(Candidate(None, wide.outline(None), degrees, found), exact=True)
    programs = job.compiled(plan).programs()
    told, _ = predict(plan, programs, AnalyticCosts(engines.first(plan.num_engines)), None, job.optimizer_states)
    assert found.time_s == pytest.approx(told.time_s, rel=0.35)
    assert max(found.needs_bytes) == pytest.approx(told.memory_bytes, rel=0.5)
