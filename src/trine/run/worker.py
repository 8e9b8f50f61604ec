"""What runs in the process of one engine."""

import os
import pickle
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trine.measure.allocator import keep_memory
from trine.run import memory
from trine.run.collect import report
from trine.run.engine import Engine
from trine.run.gloo import Gloo, PeerLost, make_groups
from trine.run.live import Live
from trine.run.record import recorded
from trine.run.wire import END, GO, Answer, Failure, Job, Ready, Setup, mapped, pack, read, unpack

Answering = Callable[[Any], object]  # from what a step is given to what it left
Starting = Callable[[Any, Path], Answering]  # from what the parent wrote into a folder


def main(rank: int, directory: str, pipe: "connection.Connection[bytes, bytes]", start: Starting) -> None:
    """Start an engine, run the steps that are asked for, report the first failure and wait for the end."""
    threading.Thread(target=_watch, args=(directory,), name="watch the parent", daemon=True).start()
    try:
        setup = _load(Path(directory) / f"engine{rank}")
        pipe.send_bytes(pack(None))  # everything is imported
        if pipe.recv_bytes() != GO:
            raise EOFError
        answer = start(setup, Path(directory))
        pipe.send_bytes(pack(Ready(memory.limit_bytes(), memory.kills_file(), memory.used_bytes())))
        while (message := pipe.recv_bytes()) != END:
            pipe.send_bytes(pack(answer(unpack(message)), Path(directory) / f"answer{rank}"))
        if dist.is_initialized():
            dist.destroy_process_group()
    except EOFError:
        remove(directory)  # the parent is gone, perhaps killed
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent must hear of it
        _last_words(pipe, _failure(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing is left to do; an interpreter with torch in it takes seconds to take itself apart


def _watch(directory: str) -> None:
    """End with the parent, even if it was killed."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    remove(directory)
    os._exit(1)


def remove(directory: str) -> None:
    """Remove the folder of the engines, which others of them may do at the same moment and may still write into."""
    for _ in range(20):
        shutil.rmtree(directory, ignore_errors=True)
        if not Path(directory).exists():
            break
        time.sleep(0.05)


def _load(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def start(setup: Setup, directory: Path) -> Answering:
    """The engine of a Program."""
    torch.set_num_threads(setup.intra_op_threads)
    keep_memory()
    rank = setup.program.rank
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if Path("/sys/class/net/lo").exists() else "lo0")
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(directory / "store"), setup.num_engines), rank=rank,
        world_size=setup.num_engines, timeout=timedelta(seconds=setup.timeout_s),
    )  # fmt: skip
    transport = Gloo(rank, setup.route, make_groups(setup.groups), make_groups(setup.groups, own=True))
    state = torch.load(directory / "state", mmap=True, weights_only=True)  # only the pages of its own tiles are read
    live = Live()
    watched = live.watched if setup.watched else nullcontext
    with watched():
        engine = Engine(setup.program, state, transport, None, pickle.loads(setup.optimizer))
    path, board = "", torch.empty(0, dtype=torch.uint8)

    def answer(job: Job) -> Answer:
        nonlocal path, board
        if job.board != path:
            path, board = job.board, mapped(job.board, Path(job.board).stat().st_size)
        job.step.inputs = read(board, job.mapped)
        if job.afresh:
            memory.forget_highest()
        with watched(), recorded([engine] if job.recorded else []) as recorders:
            run(engine, transport, job)
        usage = memory.Usage(live.peak(), memory.highest_bytes())
        spans = tuple(span for recorder in recorders for span in recorder.spans)
        return Answer(report(engine, job.step, tensors=job.tensors), transport.bytes_received, spans, usage)

    return answer


def run(engine: Engine, transport: Gloo, job: Job) -> None:
    """One step, with all that was sent taken at its end."""
    transport.begin()
    for _ in engine.run(job.step):
        pass
    transport.finish()


def _failure(error: BaseException) -> Failure:
    trace, at_s = "".join(traceback.format_exception(error)), time.monotonic()
    limit = memory.limit_bytes()
    if memory.is_memory_error(error) and limit is not None:
        return Failure("memory", trace, at_s, memory.used_bytes() + memory.asked_bytes(error), limit)
    return Failure("lost" if isinstance(error, PeerLost) else "error", trace, at_s)


def _last_words(pipe: "connection.Connection[bytes, bytes]", failure: Failure) -> None:
    """Tell the parent; keep the connections open until it ends this process, so that peers do not fail in its stead."""
    with suppress(EOFError, OSError):  # the parent may be gone
        pipe.send_bytes(pack(failure))
        while pipe.recv_bytes():
            pass
