"""Threads: engines are cores in one process.  Tiles are passed by reference, nothing is copied that need not be."""

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType

import torch
from torch import Tensor

from trine.errors import EngineFailed
from trine.lower.segment import Library
from trine.program.program import Program
from trine.run.collect import Report, Whole, report, together
from trine.run.engine import Engine, Step
from trine.run.transport import Tag, Transport, Waiting

Queues = dict[tuple[int, int], "SimpleQueue[tuple[Tag, Tensor] | None]"]


class _Stopped(Exception):
    """Another engine failed: this one gives up without a word."""


class Reference(Transport):
    """A transport that passes references through one queue for each pair of engines."""

    def __init__(self, rank: int, queues: Queues) -> None:
        super().__init__(rank)
        self.queues = queues
        self.early: dict[tuple[int, Tag], Tensor] = {}

    def put(self, peer: int, tag: Tag, tensor: Tensor) -> None:
        self.queues[self.rank, peer].put((tag, tensor))

    def get(self, peer: int, tag: Tag, like: Tensor) -> Waiting:
        while (peer, tag) not in self.early:
            message = self.queues[peer, self.rank].get()
            if message is None:
                raise _Stopped
            self.early[peer, message[0]] = message[1]
        return self.early.pop((peer, tag))
        yield  # a generator that never waits


class Threads:
    """One worker thread for each engine, alive between steps; use as a context manager or call ``close``."""

    def __init__(
        self, programs: Sequence[Program], state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None, *, intra_op_threads: int = 1,
    ) -> None:  # fmt: skip
        ranks = [program.rank for program in programs]
        self.queues: Queues = {(a, b): SimpleQueue() for a in ranks for b in ranks if a != b}
        library = Library()
        self.engines = [Engine(p, state, Reference(p.rank, self.queues), library, optimizer) for p in programs]
        self.jobs: list[SimpleQueue[tuple[Step, bool] | None]] = [SimpleQueue() for _ in ranks]
        self.done: SimpleQueue[tuple[int, Report | BaseException, str]] = SimpleQueue()
        self.workers = [
            threading.Thread(target=self._work, args=(i, intra_op_threads), name=f"engine {r}", daemon=True)
            for i, r in enumerate(ranks)
        ]
        for worker in self.workers:
            worker.start()

    def _work(self, index: int, intra_op_threads: int) -> None:
        torch.set_num_threads(intra_op_threads)
        engine = self.engines[index]
        while (job := self.jobs[index].get()) is not None:
            step, tensors = job
            try:
                for _ in engine.run(step):
                    pass
                self.done.put((index, report(engine, step, tensors=tensors), ""))
            except BaseException as error:  # noqa: BLE001  every failure must reach the caller, who raises it
                self.done.put((index, error, traceback.format_exc()))
                for (source, _), queue in self.queues.items():
                    if source == engine.program.rank:
                        queue.put(None)

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step; EngineFailed names the engine that failed first."""
        for job in self.jobs:
            job.put((replace(step, losses={}, results={}), tensors))
        reports: dict[int, Report] = {}
        failure: tuple[int, str] | None = None
        for _ in self.jobs:
            index, result, trace = self.done.get()
            if isinstance(result, Report):
                reports[index] = result
            elif failure is None and not isinstance(result, _Stopped):
                failure = (index, trace)
        if failure is not None:
            self.close()
            raise EngineFailed(rank=self.engines[failure[0]].program.rank, trace=failure[1])
        return together([reports[i] for i in range(len(self.jobs))])

    def close(self) -> None:
        """End the workers."""
        for job in self.jobs:
            job.put(None)
        for worker in self.workers:
            worker.join()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
