"""Bytes of live tensors, counted by the events of torch's own allocator.

Each thread that allocates is watched by torch's thread-local profiler of memory, which tells of every allocation and
every release with its time: no more than a record each, and nothing else of the thread is touched.  Releases may happen
in another thread than allocations (threads pass tiles by reference), so only the sum over threads has a meaning.
Left out: what libraries allocate by themselves (copies that oneDNN makes of a convolution's tensors).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch._C import _autograd, _profiler

CONFIG = _profiler.ProfilerConfig(
    _profiler.ProfilerState.CPU, False, True, False, False, False, _profiler._ExperimentalConfig()
)


class Live:
    """Watches threads; ``peak`` is the most that was alive at once in all of them, over what was there before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.events: list[tuple[float, int]] = []  # time, bytes

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, what the calling thread allocates and releases is counted."""
        _autograd._enable_profiler_legacy(CONFIG)
        try:
            yield
        finally:
            found = _autograd._disable_profiler_legacy()
            with self.lock:
                self.events += [
                    (event.start_us(), event.cpu_memory_usage())  # type: ignore[attr-defined]
                    for events in found
                    for event in events
                    if str(event.kind()) == "memory_alloc"
                ]

    def peak(self) -> int:
        """Bytes."""
        now, most = 0, 0
        for _, num_bytes in sorted(self.events, key=lambda event: event[0]):
            now += num_bytes
            most = max(most, now)
        return most
