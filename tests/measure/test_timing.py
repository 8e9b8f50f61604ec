"""Timing: what is called how often, in which threads and in which mode; never how fast."""

import threading
import time

import pytest
import torch

from trine.errors import BadInput
from trine.measure.timing import SHORTEST_S, time_callable, time_concurrently


def spin(duration_s: float) -> None:
    end = time.perf_counter() + duration_s
    while time.perf_counter() < end:
        pass


def test_the_median_of_a_known_duration():
    assert 2e-3 <= time_callable(lambda: spin(2e-3), num_samples=5) < 2e-2


def test_a_quick_callable_is_called_often():
    calls = []
    time_s = time_callable(lambda: calls.append(1), num_samples=3)
    assert len(calls) > 100
    assert 0 < time_s < SHORTEST_S


def test_bounded_duration_but_three_samples():
    calls = []
    time_callable(lambda: (calls.append(1), spin(1e-3)), num_samples=10_000, num_warmup=1, max_s=0)
    assert len(calls) == 4


def test_threads_run_at_once_with_one_thread_each_and_the_grad_mode_asked_for():
    together = threading.Barrier(3)
    seen = []

    def call() -> None:
        together.wait(timeout=10)
        seen.append((threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()))

    before = torch.get_num_threads()
    time_concurrently([call] * 3, num_samples=3)
    assert len({thread for thread, _, _ in seen}) == 3
    assert {(threads, grad) for _, threads, grad in seen} == {(1, False)}
    assert torch.get_num_threads() == before
    seen.clear()
    time_concurrently([call] * 3, grad=True, num_samples=3)
    assert {grad for _, _, grad in seen} == {True}


def test_every_thread_makes_equally_many_calls():
    counts = [0, 0]

    def quick() -> None:
        counts[0] += 1

    def slow() -> None:
        counts[1] += 1
        spin(1e-3)

    time_concurrently([quick, slow], num_samples=4, num_warmup=2)
    assert counts[0] == counts[1]


def test_the_first_error_is_passed_on_and_nobody_waits():
    with pytest.raises(ZeroDivisionError):
        time_concurrently([lambda: spin(1e-4), lambda: 1 / 0])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("timed-")]


def test_nothing_to_time_is_refused():
    with pytest.raises(BadInput, match="No callable"):
        time_concurrently([])
