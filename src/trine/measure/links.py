"""Exchange times between two threads of one process, and between two processes over gloo.

Threads hand over references through ``queue.SimpleQueue``: the size of what is handed over does not matter, reading it
does.  Processes exchange over the loopback network.  All sizes are of the full tensor.

Run as a program (two of them, started by ``measure_process_links``) this module is one of the two processes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue

import torch
import torch.distributed as dist

from trine.cost.profile import LinkTable
from trine.errors import EngineFailed
from trine.measure.timing import time_concurrently

SIZES_BYTES = tuple(4**k * 1024 for k in range(8))
"""1 KB to 16 MB."""

OPERATIONS = ("p2p", "all_reduce", "all_gather")
NUM_RANKS = 2
MIN_SAMPLES, MAX_SAMPLES, SIZE_S = 4, 12, 0.12
"""Of each size and operation between processes: samples (the first is not used), and seconds after which to stop."""


def measure_thread_links(*, max_s: float = 0.15) -> dict[str, LinkTable]:
    """Tables of exchanges between two threads: ``p2p`` hands over references both ways; ``all_reduce`` then adds the
    other's tensor to one's own out of place; ``all_gather`` then copies both halves into a new tensor.

    ``max_s`` bounds each size of each operation, in seconds.
    """
    return {
        operation: LinkTable.measured(NUM_RANKS, {size: _time_threads(operation, size, max_s) for size in SIZES_BYTES})
        for operation in OPERATIONS
    }


def _time_threads(operation: str, size: int, max_s: float) -> float:
    num_elements = size // 4 if operation != "all_gather" else size // 4 // NUM_RANKS
    tensors = [torch.ones(num_elements) for _ in range(NUM_RANKS)]
    queues: list[SimpleQueue[torch.Tensor]] = [SimpleQueue() for _ in range(NUM_RANKS)]

    def exchange(rank: int) -> torch.Tensor:
        queues[1 - rank].put(tensors[rank])
        return queues[rank].get(timeout=20.0)

    calls: dict[str, Callable[[int], torch.Tensor]] = {
        "p2p": exchange,
        "all_reduce": lambda rank: tensors[rank] + exchange(rank),
        "all_gather": lambda rank: torch.cat((tensors[rank], exchange(rank))),
    }
    call = calls[operation]
    return time_concurrently(
        [lambda rank=rank: call(rank) for rank in range(NUM_RANKS)],  # type: ignore[misc]
        num_samples=200,
        max_s=max_s,
    )


def measure_process_links(*, timeout_s: float = 40.0) -> dict[str, LinkTable]:
    """Tables of exchanges between two new processes over gloo; ``p2p`` sends and receives at once.

    The processes are ended after ``timeout_s`` seconds whatever they do.  Raises EngineFailed if one fails or is late.
    """
    with tempfile.TemporaryDirectory(prefix="trine-links-") as name:
        folder = Path(name)
        processes = [_start(folder, timeout_s, rank) for rank in range(NUM_RANKS)]
        try:
            _wait(processes, folder, timeout_s)
            found = json.loads((folder / "times.json").read_text())
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return {
        operation: LinkTable.measured(NUM_RANKS, {int(size): time_s for size, time_s in times.items()})
        for operation, times in found.items()
    }


_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from trine.measure.links import measure_as_rank
measure_as_rank(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
"""


def _start(folder: Path, timeout_s: float, rank: int) -> "subprocess.Popen[bytes]":
    words = [json.dumps(sys.path), str(folder), str(timeout_s), str(rank)]
    with (folder / f"errors-{rank}").open("wb") as errors:
        return subprocess.Popen([sys.executable, "-c", _PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=errors)


def _wait(processes: list["subprocess.Popen[bytes]"], folder: Path, timeout_s: float) -> None:
    """Wait until all have ended well; raise EngineFailed for the first that failed, or when the time is up."""
    end = time.monotonic() + timeout_s
    running = dict(enumerate(processes))
    while running:
        for rank, process in list(running.items()):
            try:
                status = process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            if status:
                trace = (folder / f"errors-{rank}").read_text(errors="replace")
                raise EngineFailed(rank=rank, trace=trace)
            del running[rank]
        if running and time.monotonic() > end:
            late = f"It measured its links for {timeout_s:g} s without an end and was stopped."
            raise EngineFailed(rank=min(running), trace=late)


def measure_as_rank(folder: str, timeout_s: float, rank: int) -> None:
    """Be process ``rank`` of the two: measure every operation and size; rank 0 writes ``times.json``."""
    torch.set_num_threads(1)
    store = f"file://{Path(folder) / 'store'}"
    late = timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=NUM_RANKS, timeout=late)
    times = {
        operation: {size: _time_processes(operation, size, rank) for size in SIZES_BYTES} for operation in OPERATIONS
    }
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        (Path(folder) / "times.json").write_text(json.dumps(times))


def _time_processes(operation: str, size: int, rank: int) -> float:
    """Median seconds of one call.  Both processes make equally many calls, more of small messages than of large."""
    own, other = torch.zeros(size // 4), torch.empty(size // 4)
    part = torch.zeros(size // 4 // NUM_RANKS)

    def exchange() -> None:
        receive = dist.irecv(other, 1 - rank)
        send = dist.isend(own, 1 - rank)
        for request in (receive, send):
            if request is not None:
                request.wait()

    calls: dict[str, Callable[[], object]] = {
        "p2p": exchange,
        "all_reduce": lambda: dist.all_reduce(own),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
    }
    num_calls = 20 if size <= 2**18 else 3
    samples: list[float] = []
    begin = time.perf_counter()
    while _another(rank, len(samples), time.perf_counter() - begin):
        start = time.perf_counter()
        for _ in range(num_calls):
            calls[operation]()
        samples.append((time.perf_counter() - start) / num_calls)
    return statistics.median(samples[1:])


def _another(rank: int, num_samples: int, past_s: float) -> bool:
    """Whether both processes take one more sample: rank 0 decides, and waiting for its word starts them together."""
    enough = num_samples >= MAX_SAMPLES or (num_samples >= MIN_SAMPLES and past_s > SIZE_S)
    word = torch.tensor([not enough], dtype=torch.int32)
    dist.broadcast(word, 0)
    dist.barrier()
    return bool(word.item())
