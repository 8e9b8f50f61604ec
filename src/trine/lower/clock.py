"""What time it is for a random operator: seed, step and micro-batch.  Each thread has its own clock."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class RandomClock:
    """The part of a random draw's name that changes while a program runs."""

    seed: int = 0
    step: int = 0
    micro_batch: int = 0


_local = threading.local()


def set_clock(clock: RandomClock) -> None:
    """Set the clock of the calling thread."""
    _local.clock = clock


def clock() -> RandomClock:
    """The clock of the calling thread; all zero before the first :func:`set_clock`."""
    return getattr(_local, "clock", RandomClock())
