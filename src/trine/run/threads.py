"""Threads: engines are cores in one process.  Tiles are passed by reference, nothing is copied that need not be."""

import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from trine.errors import BadInput, EngineFailed
from trine.lower.segment import Library
from trine.measure.allocator import keep_memory
from trine.program.program import Program
from trine.run.collect import Report, Whole, report, together
from trine.run.engine import Engine, Step
from trine.run.record import traced
from trine.run.transport import Sums, Tag, Transport, Waiting, split
from trine.trace.trace import Trace

Queues = dict[tuple[int, int], "SimpleQueue[tuple[Tag, Any] | None]"]


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

    def combine(self, gradients: Sequence[Tensor], group: Sequence[int], tag: Tag) -> Sums:
        """The sums, made once for all in shared memory: each engine adds up its share of the elements, in order of rank
        as everywhere, and reads the rest when the others are done."""
        mine = [gradient.contiguous() for gradient in gradients]
        num = sum(gradient.numel() for gradient in mine)
        self.count_sum(sum(gradient.nbytes for gradient in mine), group)
        flat = torch.empty(num, dtype=mine[0].dtype) if self.rank == group[0] else None
        given: list[tuple[list[Tensor], Tensor | None]] = yield from self.share((mine, flat), group, (*tag, "given"))
        total = given[0][1]
        assert total is not None
        place = group.index(self.rank)
        add_up([tensors for tensors, _ in given], total, num * place // len(group), num * (place + 1) // len(group))
        yield from self.share(None, group, (*tag, "done"))
        return split(total, mine)

    def share(self, value: Any, group: Sequence[int], tag: Tag) -> Generator[None, None, list[Any]]:
        """The values of all engines of a group, by reference, in order of rank."""
        for peer in group:
            if peer != self.rank:
                self.queues[self.rank, peer].put((tag, value))
        result = []
        for peer in group:
            result.append(value if peer == self.rank else (yield from self.get(peer, tag, torch.empty(0))))
        return result


def add_up(given: Sequence[Sequence[Tensor]], total: Tensor, low: int, high: int) -> None:
    """Elements ``low`` to ``high`` of the sum of equal lists of tensors, each list taken as one flat tensor."""
    start = 0
    for tensors in zip(*given, strict=True):
        first, last = max(low - start, 0), min(high - start, tensors[0].numel())
        if first < last:
            parts = [tensor.view(-1)[first:last] for tensor in tensors]
            into = total[start + first : start + last]
            torch.add(parts[0], parts[1], out=into)
            for part in parts[2:]:
                into.add_(part)
        start += tensors[0].numel()


def run(engine: Engine, step: Step, tensors: bool) -> Report:
    """One engine's step and its report."""
    for _ in engine.run(step):
        pass
    return report(engine, step, tensors=tensors)


class Threads:
    """One worker thread for each engine, alive between steps; use as a context manager or call ``close``."""

    def __init__(
        self, programs: Sequence[Program], state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None, *, intra_op_threads: int = 1,
    ) -> None:  # fmt: skip
        keep_memory()
        self.closed = False
        ranks = [program.rank for program in programs]
        self.watched: Callable[[], AbstractContextManager[None]] = nullcontext  # around each engine's step
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
            try:
                with self.watched():
                    result = run(engine, *job)
                self.done.put((index, result, ""))
            except BaseException as error:  # noqa: BLE001  every failure must reach the caller, who raises it
                self.done.put((index, error, traceback.format_exc()))
                for (source, _), queue in self.queues.items():
                    if source == engine.program.rank:
                        queue.put(None)
            job = result = None  # what a step left is the caller's: it does not live here until the next one

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step; EngineFailed names the engine that failed first, and all are ended then."""
        if self.closed:
            raise BadInput("These engines were ended.", "Only running ones make a step.", "Start new ones.")
        try:
            return together(self._step(step, tensors=tensors))
        except BaseException:
            self.close()
            raise

    def _step(self, step: Step, *, tensors: bool) -> list[Report]:
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
            raise EngineFailed(rank=self.engines[failure[0]].program.rank, trace=failure[1])
        return [reports[i] for i in range(len(self.jobs))]

    def trace(self, step: Step, label: str = "") -> Trace:
        """Run one step; when each engine did what."""
        return traced(self, step, label)

    def close(self) -> None:
        """End the workers, at once even if they wait for each other."""
        if self.closed:
            return
        self.closed = True
        for job in self.jobs:
            job.put(None)
        for queue in self.queues.values():
            queue.put(None)
        for worker in self.workers:
            if worker is not threading.current_thread():  # which may be the one that collects garbage
                worker.join()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
