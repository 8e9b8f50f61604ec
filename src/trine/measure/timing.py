"""Timing of callables: medians of several, warmed up, of bounded duration; alone or in several threads at once."""

import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch

from trine.errors import BadInput

SHORTEST_S = 2e-4
"""A sample lasts at least this long: a quicker callable is called several times in it."""

MIN_SAMPLES = 3


def time_callable(fn: Callable[[], object], *, num_samples: int = 9, num_warmup: int = 2, max_s: float = 1.0) -> float:
    """Median seconds of one call.

    Stops after ``num_samples`` samples, or after ``max_s`` seconds once there are three.  Whatever ``fn`` raises is
    passed on.
    """
    calls = _warm_up(fn, num_warmup)
    samples: list[float] = []
    end = time.perf_counter() + max_s
    while len(samples) < num_samples and (len(samples) < MIN_SAMPLES or time.perf_counter() < end):
        samples.append(_sample(fn, calls))
    return statistics.median(samples)


def time_concurrently(
    fns: Sequence[Callable[[], object]],
    *,
    grad: bool = False,
    num_samples: int = 9,
    num_warmup: int = 2,
    max_s: float = 1.0,
) -> float:
    """Median seconds of one call while each callable runs in a thread of its own, all at once.

    Each thread has one intra-op thread and its own grad mode.  Every sample starts at a barrier and lasts equally many
    calls in all threads, as many as the slowest callable needs; the median is over all samples of all
    threads.  The first error of a thread is passed on.
    """
    if not fns:
        raise BadInput("No callable was given to time.", "One a thread.")
    meeting = _Meeting(len(fns), num_samples, time.perf_counter() + max_s)
    threads = [
        threading.Thread(target=meeting.work, args=(fn, grad, num_warmup), name=f"timed-{i}", daemon=True)
        for i, fn in enumerate(fns)
    ]
    before = torch.get_num_threads()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.set_num_threads(before)
    if meeting.errors:
        raise meeting.errors[0]
    return statistics.median(meeting.samples)


class _Meeting:
    """What the threads of one ``time_concurrently`` share; the barrier's action decides whether a sample follows."""

    def __init__(self, num_threads: int, num_samples: int, end: float) -> None:
        self.samples: list[float] = []
        self.errors: list[BaseException] = []
        self.calls = 1
        self._wanted: list[int] = []
        self._num_samples, self._num_done, self._end, self._more = num_samples, 0, end, True
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(num_threads, action=self._decide)

    def _decide(self) -> None:
        self.calls = min(self._wanted)
        self._more = self._num_done < self._num_samples and (
            self._num_done < MIN_SAMPLES or time.perf_counter() < self._end
        )
        self._num_done += 1

    def work(self, fn: Callable[[], object], grad: bool, num_warmup: int) -> None:
        try:
            torch.set_num_threads(1)
            with torch.set_grad_enabled(grad):
                calls = _warm_up(fn, num_warmup)
                with self._lock:
                    self._wanted.append(calls)
                self._barrier.wait()
                while self._more:
                    sample = _sample(fn, self.calls)
                    with self._lock:
                        self.samples.append(sample)
                    self._barrier.wait()
        except threading.BrokenBarrierError:
            return  # another thread failed: its error is the one to show
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self.errors.append(error)
            self._barrier.abort()


def _warm_up(fn: Callable[[], object], num_warmup: int) -> int:
    """Call ``fn`` a few times; return how many calls make one sample long enough."""
    quickest = min(_sample(fn, 1) for _ in range(max(num_warmup, 1)))
    return max(1, min(10_000, round(SHORTEST_S / max(quickest, 1e-9))))


def _sample(fn: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    return (time.perf_counter() - start) / calls
