"""Engines that are threads: what they do after an end."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.run.nets import job, plan

from trine.errors import BadInput, EngineFailed
from trine.run.engine import Step
from trine.run.threads import Threads


@pytest.fixture
def engines() -> Iterator[Threads]:
    now, made = job("net"), plan("net", "data")
    with Threads(now.compiled(made).programs(), now.state()) as found:
        yield found


def a_step() -> Step:
    return job("net").step(plan("net", "data"))


def test_no_step_after_a_failed_one(engines: Threads) -> None:
    """An input that is missing ends the engines; the next step is refused, and does not wait for ever."""
    with pytest.raises(EngineFailed, match="KeyError"):
        engines.step(replace(a_step(), inputs={}))
    assert not any(worker.is_alive() for worker in engines.workers)
    with pytest.raises(BadInput, match="ended"):
        engines.step(a_step())


def test_an_interrupt_ends_the_engines(engines: Threads) -> None:
    """Ctrl-C while one engine waits for another that never comes."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(step: Step) -> Iterator[None]:
        signal.pthread_kill(main, signal.SIGINT)
        yield from ()

    engines.engines[0].run = interrupt  # type: ignore[method-assign,assignment]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            engines.step(a_step(), tensors=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not any(worker.is_alive() for worker in engines.workers)


def test_closing_twice_is_closing_once(engines: Threads) -> None:
    engines.close()
    engines.close()
    with pytest.raises(BadInput, match="ended"):
        engines.step(a_step())
