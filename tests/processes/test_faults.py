"""The first failure ends all engines, is named, and leaves nothing behind."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.processes.cases import case
from tests.processes.faults import FailsOnOne, refuses

from trine.errors import EngineFailed, OutOfMemory
from trine.run.processes import Processes

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]
WITHIN_S = 5.0
REPOSITORY = Path(__file__).parents[2]


def fails(kind: str, plan: str = "data") -> tuple[Exception, float]:
    """The error of a second step in which engine 1 fails, and how long it took to come."""
    small = case(plan)
    with Processes(small.programs, small.state, FailsOnOne(kind), start_method="forkserver") as processes:
        processes.step(small.steps[0], tensors=False)
        start = time.monotonic()
        with pytest.raises((EngineFailed, OutOfMemory)) as caught:
            processes.step(small.steps[1], tensors=False)
    return caught.value, time.monotonic() - start


@pytest.mark.parametrize(
    ("kind", "words"),
    [("exception", "ZeroDivisionError: on purpose"), ("killed", "SIGKILL"), ("exit", "exit status 7")],
)
@pytest.mark.parametrize("plan", ["data", "1f1b"])
def test_the_first_failure_is_the_one_reported(kind: str, words: str, plan: str) -> None:
    error, took_s = fails(kind, plan)
    assert isinstance(error, EngineFailed)
    assert error.rank == 1
    assert words in str(error)
    assert took_s < WITHIN_S


def test_out_of_memory_says_how_much() -> None:
    error, took_s = fails("memory")
    assert isinstance(error, OutOfMemory)
    assert error.rank == 1
    assert "GiB" in error.needed
    assert took_s < WITHIN_S


def test_a_failure_at_the_start() -> None:
    small = case("data")
    with pytest.raises(EngineFailed, match="at the start, on purpose") as caught:
        Processes(small.programs, small.state, refuses, start_method="forkserver")
    assert caught.value.rank == 1


def test_an_engine_killed_from_outside_during_a_step() -> None:
    small = case("data")
    with Processes(small.programs, small.state, small.optimizer, start_method="forkserver") as processes:
        victim = processes.supervisor.processes[1].pid
        os.kill(victim, signal.SIGSTOP)  # engine 0 gets into the step and waits for it
        killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
        killer.start()
        start = time.monotonic()
        with pytest.raises(EngineFailed, match="SIGKILL") as caught:
            processes.step(small.steps[0])
        killer.join()
    assert caught.value.rank == 1
    assert time.monotonic() - start < WITHIN_S


def test_an_engine_that_does_not_answer() -> None:
    small = case("data")
    processes = Processes(small.programs, small.state, small.optimizer, timeout_s=2.0, start_method="forkserver")
    with processes:
        os.kill(processes.supervisor.processes[1].pid, signal.SIGSTOP)
        with pytest.raises(EngineFailed, match="did not answer") as caught:
            processes.step(small.steps[0])
    assert caught.value.rank == 1
    assert "PeerLost" in caught.value.trace


def endless(start_method: str) -> tuple[subprocess.Popen[str], Path, list[int]]:
    """A script that trains without end: itself, its folder, its engines."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}
    command = [sys.executable, "-m", "tests.processes.endless", start_method]
    script = subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    folder, *engines = script.stdout.readline().split()
    return script, Path(folder), [int(engine) for engine in engines]


def assert_ended(engines: list[int], watched: list[int]) -> None:
    """Wait for the ends of processes by their file descriptors."""
    for engine, handle in zip(engines, watched, strict=True):
        ended, _, _ = select.select([handle], [], [], WITHIN_S)
        os.close(handle)
        assert ended, f"engine {engine} is left"


@pytest.mark.parametrize(
    ("number", "start_method"), [(signal.SIGINT, "spawn"), (signal.SIGKILL, "spawn"), (signal.SIGKILL, "forkserver")]
)
def test_interrupting_or_killing_the_parent_ends_all(number: signal.Signals, start_method: str) -> None:
    script, folder, engines = endless(start_method)
    watched = [os.pidfd_open(engine) for engine in engines]
    assert len(watched) == 2
    if number == signal.SIGINT:
        os.killpg(script.pid, number)  # as a terminal does: to all of the group
    else:
        os.kill(script.pid, number)
    _, said = script.communicate(timeout=2 * WITHIN_S)
    assert_ended(engines, watched)
    assert not folder.exists()
    if number == signal.SIGINT:
        assert said.count("KeyboardInterrupt") == 1, said
    else:
        assert not said
