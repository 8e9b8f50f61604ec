"""When a second replica helps."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from trine.planner.queues import latency_s, second_replica_from

TIMES = st.floats(1e-4, 1.0)


@given(TIMES, st.floats(0.0, 0.95))
def test_waiting_grows_with_load(service_s: float, load: float) -> None:
    assert latency_s(service_s, load / service_s) >= service_s
    assert latency_s(service_s, (load + 0.04) / service_s) > latency_s(service_s, load / service_s)


def test_a_full_queue_never_answers() -> None:
    assert latency_s(0.01, 100.0) == inf


@given(TIMES, st.floats(1.001, 1.9))
def test_at_the_crossover_both_answer_equally_soon(service_s: float, crowd: float) -> None:
    rate = second_replica_from(service_s, crowd * service_s)
    assert 0 < rate < 1 / service_s
    below, above = 0.98 * rate, min(1.02 * rate, 0.9999 / service_s)
    assert latency_s(crowd * service_s, below / 2) > latency_s(service_s, below)
    assert latency_s(crowd * service_s, above / 2) < latency_s(service_s, above)


@given(TIMES, st.floats(2.0, 10.0))
def test_replicas_that_together_carry_no_more_than_one_never_help(service_s: float, crowd: float) -> None:
    assert second_replica_from(service_s, crowd * service_s) == inf


def test_replicas_that_do_not_disturb_each_other_always_help() -> None:
    assert second_replica_from(0.01, 0.01) == 0.0
