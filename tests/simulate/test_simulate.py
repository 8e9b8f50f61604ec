"""The clock: closed forms of pipelines, waiting, order, bandwidth, deadlock."""

import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulate.small import EqualStages, programs_of

from trine.cluster.cluster import Cluster, Engine, Link, Tier
from trine.cost.segments import AnalyticCosts
from trine.simulate.simulate import Deadlock, simulate
from trine.simulate.volume import bytes_sent

F, B = 3.0, 5.0


def cluster(count: int, bandwidth: float, latency: float = 1e-6) -> Cluster:
    engine = Engine(
        name="round",
        kind="core",
        peak_flops_per_s={"float32": 1e9},
        memory_bytes=2**30,
        memory_bandwidth_bytes_per_s=1e9,
        launch_s=1e-6,
    )
    tiers = (
        Tier(name="all", size=count, link=Link(latency_s=latency, bandwidth_bytes_per_s=bandwidth)),
    ) if count > 1 else ()  # fmt: skip
    return Cluster(name="round", engines=(engine,) * count, tiers=tiers)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_equal_stages_take_the_closed_form(schedule: str, stages: int, micro_batches: int) -> None:
    """(m + p - 1)(F + B): Huang et al. 2019, Narayanan et al. 2019."""
    programs = programs_of(8, 4, micro_batches, stages=stages, schedule=schedule)
    trace = simulate(programs, EqualStages(F, B))
    assert trace.makespan_s == pytest.approx((micro_batches + stages - 1) * (F + B))
    assert trace.bubble_share == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_latency_is_paid_along_the_pipeline() -> None:
    """One micro-batch through p stages: every hand-over is exposed, forward and back."""
    trace = simulate(programs_of(stages=4), EqualStages(F, B, latency_s=0.5))
    assert trace.makespan_s == pytest.approx(4 * (F + B) + 2 * 3 * 0.5)


def test_one_engine_never_waits_or_sends() -> None:
    programs = programs_of(micro_batches=4)
    trace = simulate(programs, EqualStages(F, B))
    assert trace.waiting_s() == (0.0,)
    assert trace.utilisation() == pytest.approx((1.0,))
    assert bytes_sent(programs[0]) == 0 == trace.bytes_sent()[0]


PLANS: dict[str, dict[str, Any]] = {
    "data": {"data": 2},
    "data by shares": {"data": 2, "shares": (3, 1)},
    "stages": {"stages": 2, "micro_batches": 4},
    "channel": {"tensor": (2,), "cuts": ("channel",)},
    "mixed": {"data": 2, "stages": 2, "micro_batches": 2, "schedule": "gpipe"},
}


@pytest.mark.parametrize("name", PLANS)
def test_order_of_the_trace_is_that_of_the_programs(name: str) -> None:
    programs = programs_of(**PLANS[name])
    trace = simulate(programs, AnalyticCosts(cluster(len(programs), 1e9)))
    assert not trace.calibrated
    for program, spans in zip(programs, trace.by_engine(), strict=True):
        assert [(s.kind, s.id, s.micro_batch) for s in spans] == [
            (i.kind, i.id, i.micro_batch) for i in program.instructions
        ]
        assert all(a.end_s == b.start_s for a, b in pairwise(spans))
        assert sum(s.bytes for s in spans) == bytes_sent(program)


@pytest.mark.parametrize("name", PLANS)
@given(exponent=st.floats(3, 12), latency=st.floats(0, 1e-3))
def test_twice_the_bandwidth_is_never_slower(name: str, exponent: float, latency: float) -> None:
    programs = programs_of(**PLANS[name])
    slow = simulate(programs, AnalyticCosts(cluster(len(programs), 10**exponent, latency)))
    fast = simulate(programs, AnalyticCosts(cluster(len(programs), 2 * 10**exponent, latency)))
    assert fast.makespan_s <= slow.makespan_s * (1 + 1e-12)


def test_bytes_in_equal_bytes_out() -> None:
    """What engines send each other in a micro-batch forward comes back as gradients of the same size."""
    programs = programs_of(**PLANS["stages"])
    sent = [bytes_sent(program) for program in programs]
    assert sent[0] == sent[1] > 0


def test_deadlock_names_engines_and_instructions() -> None:
    first, second = programs_of(stages=2)
    lost = tuple(i for i in first.instructions if i.kind != "move")
    with pytest.raises(Deadlock, match=r"engine 0 at move_back .* engine 1 at move .* from engine 0"):
        simulate((msgspec.structs.replace(first, instructions=lost), second), EqualStages(F, B))


def test_a_message_that_nobody_receives_is_an_error() -> None:
    first, second = programs_of(stages=2)
    lost = tuple(i for i in first.instructions if i.kind != "move_back")
    with pytest.raises(Deadlock, match="engine 0 at its end, without having received"):
        simulate((msgspec.structs.replace(first, instructions=lost), second), EqualStages(F, B))


def test_thousands_of_instructions_in_a_moment() -> None:
    programs = programs_of(256, 8, 256, stages=8)
    count = sum(len(program.instructions) for program in programs)
    costs = AnalyticCosts(cluster(8, 1e9))
    start = time.perf_counter()
    trace = simulate(programs, costs)
    took_s = time.perf_counter() - start
    assert len(trace.spans) == count > 10_000
    assert took_s < 2.0
