"""Timing one piece of work as a training step meets it, in several threads that do the same at once.

A trial makes several *instances* of the work, each with tensors of its own, and runs them as if they were equal layers
of a model: all forward in order, then all backward in reverse order.  So

* weights and what autograd saved come from memory, not from a cache, as soon as the instances together are larger than
  the last cache (``ROTATE_BYTES``, up to ``MOST_INSTANCES``);
* before each call a buffer of ``SWEEP_BYTES`` is written, outside the timed span: in a step other operators ran in
  between, and neither Python's nor the operator's own code and data are still in a cache (a small operator takes two
  to five times as long as in a loop of its own);
* what a producer has just written (activations, incoming gradients) is written again after that, not timed either;
* outputs live until their backward pass; their memory is what earlier steps left (see ``measure/allocator.py``).

Cores share memory bandwidth and Python runs one thread at a time: both are in the times, because all threads start
each pass together.  A call during which the system gave the core to somebody else counts by its thread's CPU time,
unless there are more threads than cores.
"""

import resource
import statistics
import threading
import time
from collections.abc import Callable
from typing import Protocol

import torch

from trine.cost.profile import Timing
from trine.measure.allocator import keep_memory

ROTATE_BYTES = 64 * 2**20
SWEEP_BYTES = 32 * 2**20
MOST_INSTANCES = 48
MOST_BYTES = 512 * 2**20
SAMPLES = 12
"""Stops after that many samples of each direction and thread, or when the time is over."""


class Instance(Protocol):
    """One copy of the work."""

    num_bytes: int
    saved_bytes: int

    def touch(self) -> None:
        """Write what a producer has just written; not timed."""

    def forward(self) -> None:
        """The timed forward part; keeps its result."""

    def touch_gradient(self) -> None:
        """Write the incoming gradient; not timed."""

    def backward(self) -> None:
        """The timed backward part; drops what forward kept."""


def time_trial(
    make: Callable[[], Instance], concurrency: int, max_s: float = 0.5, *, intra_op_threads: int = 1
) -> Timing:
    """Median seconds of forward and backward while ``concurrency`` threads run their own instances, each operator with
    ``intra_op_threads`` threads of torch's own.

    Raises what an instance raises.
    """
    keep_memory()
    trial = _Trial(make, concurrency, max_s, intra_op_threads)
    threads = [threading.Thread(target=trial.work, name=f"trial-{i}", daemon=True) for i in range(concurrency)]
    before = torch.get_num_threads()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.set_num_threads(before)
    if trial.errors:
        raise trial.errors[0]
    return Timing(
        concurrency=concurrency, forward_s=statistics.median(trial.forward_s),
        backward_s=statistics.median(trial.backward_s), saved_bytes=trial.saved_bytes,
    )  # fmt: skip


class _Trial:
    """What the threads of a trial share."""

    def __init__(self, make: Callable[[], Instance], concurrency: int, max_s: float, intra_op_threads: int) -> None:
        self.make, self.max_s, self.intra_op_threads = make, max_s, intra_op_threads
        self.forward_s: list[float] = []
        self.backward_s: list[float] = []
        self.errors: list[BaseException] = []
        self.saved_bytes = 0
        self.calls_s: list[tuple[float, int]] = []
        self.num_instances = self.num_passes = 1
        self.lock = threading.Lock()
        self.planning = threading.Barrier(concurrency, action=self.decide)
        self.meeting = threading.Barrier(concurrency)

    def decide(self) -> None:
        """How many instances and passes, from the first call of each thread: the same for all of them."""
        call_s = max(seconds for seconds, _ in self.calls_s)
        size = max(num_bytes for _, num_bytes in self.calls_s)
        fitting = MOST_BYTES // max(size * len(self.calls_s), 1)
        wanted = min(-(-ROTATE_BYTES // max(size, 1)), MOST_INSTANCES, fitting)
        calls = max(3, round(self.max_s / max(call_s, 1e-6)))
        self.num_instances = max(2, min(wanted, calls))
        self.num_passes = max(1, min(calls // self.num_instances, -(-SAMPLES // self.num_instances), SAMPLES))

    def work(self) -> None:
        try:
            torch.set_num_threads(self.intra_op_threads)
            self.run()
        except threading.BrokenBarrierError:
            return  # another thread failed: its error is the one to show
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self.errors.append(error)
            self.planning.abort()
            self.meeting.abort()

    def run(self) -> None:
        sweep = torch.ones(SWEEP_BYTES // 4)
        first = self.make()
        _once(first)  # the first call of an operator prepares kernels
        forward_s, backward_s = _once(first)
        with self.lock:
            self.calls_s.append((forward_s + backward_s, first.num_bytes))
            self.saved_bytes = first.saved_bytes
        self.planning.wait()
        instances = [first, *(self.make() for _ in range(self.num_instances - 1))]
        leave_memory(self.num_instances * first.num_bytes)
        ahead: list[float] = []
        back: list[float] = []
        for _ in range(self.num_passes):
            self.meeting.wait()
            for instance in instances:
                sweep.mul_(1.0)
                instance.touch()
                ahead.append(_timed(instance.forward))
            self.meeting.wait()
            for instance in reversed(instances):
                sweep.mul_(1.0)
                instance.touch_gradient()
                back.append(_timed(instance.backward))
        with self.lock:
            self.forward_s += ahead
            self.backward_s += back


def leave_memory(num_bytes: int) -> None:
    """Touch and free that much, as earlier steps would have."""
    blocks = [torch.zeros(2**18) for _ in range(num_bytes // 2**20)]
    blocks.clear()


def _once(instance: Instance) -> tuple[float, float]:
    instance.touch()
    forward_s = _timed(instance.forward)
    instance.touch_gradient()
    return forward_s, _timed(instance.backward)


def _timed(call: Callable[[], None]) -> float:
    """Seconds of one call; CPU seconds if the thread was put aside meanwhile."""
    switches = _switches()
    start, cpu_start = time.perf_counter(), time.thread_time()
    call()
    wall_s, cpu_s = time.perf_counter() - start, time.thread_time() - cpu_start
    return cpu_s if _switches() > switches else wall_s


def _switches() -> int:
    """How often this thread was put aside; 0 where the system counts that for whole processes only (not Linux)."""
    of_thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if of_thread is None else resource.getrusage(of_thread).ru_nivcsw
