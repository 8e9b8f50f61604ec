"""Times of single local operators, memory copies and optimizer steps, kept in the Profile.

Nothing here runs a model or a part of one: each distinct operator of the given Programs (and the one-engine plan is a
Program too) is timed alone, with as many threads doing the same at once as the Programs have engines.  What has been
timed before at that concurrency is not timed again.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from trine.cost.keys import operator_keys
from trine.cost.memory_tables import (
    COPY_KINDS,
    LARGE_BYTES,
    LARGE_TENSORS,
    MANY_BYTES,
    MANY_TENSORS,
    MESSAGE,
    SEGMENT,
    SIZES_BYTES,
    copy_key,
    optimizer_key,
)  # fmt: skip
from trine.cost.profile import Profile, Timing
from trine.cost.segments import MeasuredCosts
from trine.lower.clock import RandomClock, set_clock
from trine.lower.tiles import put, take
from trine.measure.rebuild import operator_instance
from trine.measure.trial import SWEEP_BYTES, time_trial
from trine.program.program import Program

Progress = Callable[[str, float], None]
OptimizerFactory = Callable[[list[Tensor]], torch.optim.Optimizer]
OPERATOR_S = 0.25
"""Seconds for one operator: a slow one takes as long as its few calls."""


def measure_operators(
    programs: Sequence[Program], profile: Profile, *, budget_s: float = 120.0, operator_s: float = OPERATOR_S,
    optimizer: OptimizerFactory | None = None, progress: Progress | None = None, intra_op_threads: int = 1,
) -> Profile:  # fmt: skip
    """The profile with every operator of these Programs at their number of engines.

    When ``budget_s`` seconds are over the rest stays unmeasured and is predicted by rates.  An operator that cannot be
    run alone stays unmeasured too.  A profile holds
    for one number of intra-op threads: give one of its own where each operator uses several.
    """
    concurrency, end = len(programs), time.perf_counter() + budget_s
    trial = partial(time_trial, concurrency=concurrency, max_s=operator_s, intra_op_threads=intra_op_threads)
    jobs: dict[str, Callable[[], Timing]] = {
        SEGMENT: partial(time_segment, concurrency), MESSAGE: partial(time_message, concurrency),
    }  # fmt: skip
    for kind in COPY_KINDS:
        for size in SIZES_BYTES:
            jobs[copy_key(kind, size)] = partial(trial, partial(CopyInstance, kind, size))
    if optimizer is not None and any(program.training for program in programs):
        name = optimizer_name(optimizer)
        for count, size in ((MANY_TENSORS, MANY_BYTES), (LARGE_TENSORS, LARGE_BYTES)):
            make = partial(OptimizerInstance, optimizer, count, size)
            jobs[optimizer_key(name, count)] = partial(trial, make)
    for key in heaviest_first(programs, profile):
        jobs[key] = partial(trial, partial(operator_instance, key))
    todo = {key: job for key, job in jobs.items() if profile.timing(key, concurrency) is None}
    found: dict[str, Timing] = {}
    for number, (key, job) in enumerate(todo.items()):
        if time.perf_counter() > end:
            break
        if progress is not None:
            progress(title(key), number / len(todo))
        overhead = found.get(SEGMENT) or profile.timing(SEGMENT, concurrency)
        try:
            timing = job()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # its tensors cannot be made up: the roofline of the measured rates takes its place
        found[key] = less(timing, overhead) if key.startswith("{") and overhead is not None else timing
    if progress is not None:
        progress("done", 1.0)
    return profile.with_timings(found)


def heaviest_first(programs: Sequence[Program], profile: Profile) -> list[str]:
    """Keys of the Programs' operators in falling order of the time that they should take together, by rates: what is
    left when the time is over is then little."""
    link: Any = next(iter(profile.links))  # of no matter here
    costs, weight = MeasuredCosts(profile, len(programs), link), dict[str, float]()
    for program in programs:
        for segment in program.segments.values():
            for key, op in zip(operator_keys(program, segment), segment.operators, strict=True):
                weight[key] = weight.get(key, 0.0) + sum(costs.by_rates(program, op, key))
    return sorted(weight, key=lambda key: -weight[key])


def title(key: str) -> str:
    """A key in a few words, for the progress."""
    return key.partition('"target":"')[2].partition('"')[0] or key


def less(timing: Timing, overhead: Timing) -> Timing:
    """The backward time without what the call itself costs."""
    backward_s = max(timing.backward_s - overhead.backward_s, 0.0)
    return Timing(
        concurrency=timing.concurrency, forward_s=timing.forward_s, backward_s=backward_s,
        saved_bytes=timing.saved_bytes,
    )  # fmt: skip


def time_segment(concurrency: int) -> Timing:
    """What a segment adds to its operators: a segment of one tiny operator, less what one more of them takes."""
    one, ten = (time_trial(partial(SegmentInstance, n), concurrency, 0.1) for n in (1, 10))
    forward_s = one.forward_s - (ten.forward_s - one.forward_s) / 9
    backward_s = one.backward_s - (ten.backward_s - one.backward_s) / 9
    return Timing(
        concurrency=concurrency, forward_s=max(forward_s, 0.0), backward_s=max(backward_s, 0.0), saved_bytes=0
    )


class SegmentInstance:
    """A segment of tiny operators, run as the executor runs one."""

    def __init__(self, length: int) -> None:
        self.length, self.num_bytes, self.saved_bytes = length, 64, 64
        self.input, self.gradient, self.values = torch.ones(16), torch.ones(16), dict[int, Tensor]()
        self.leaf = self.input
        self.edge: Any = None

    def touch(self) -> None:
        pass

    def forward(self) -> None:
        set_clock(RandomClock())
        with torch.enable_grad():
            self.leaf = output = self.input.detach().requires_grad_()
            for _ in range(self.length):
                output = torch.relu(output)
        self.edge = get_gradient_edge(output)
        self.values[0] = output.detach()

    def touch_gradient(self) -> None:
        pass

    def backward(self) -> None:
        torch.autograd.grad([self.edge], [self.leaf], [self.gradient], allow_unused=True)


def time_message(concurrency: int, max_s: float = 0.5) -> Timing:
    """A message's part of an exchange in which every engine sends a small piece to the next one, gets one from the
    engine before it and assembles both: putting (forward) and getting (backward), with half of the rest each.  What is
    waited, and the copies themselves, are left out.
    """
    ring = Ring(concurrency, max_s)
    threads = [threading.Thread(target=ring.work, args=(i,), name=f"ring-{i}", daemon=True) for i in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if ring.errors:
        raise ring.errors[0]
    copy_s = time_trial(partial(CopyInstance, "copy", Ring.NUM_BYTES), concurrency, 0.1).forward_s
    put_s, get_s = statistics.median(ring.put_s), max(statistics.median(ring.get_s) - 2 * copy_s, 0.0)
    return Timing(concurrency=concurrency, forward_s=put_s / 2, backward_s=get_s / 2, saved_bytes=0)


class Ring:
    """Threads that exchange small pieces round after round; between two rounds each goes through other memory."""

    NUM_BYTES = 4096
    ROUNDS = 24

    def __init__(self, num_threads: int, max_s: float) -> None:
        self.queues: list[SimpleQueue[tuple[tuple[str, int, int], Tensor]]] = [
            SimpleQueue() for _ in range(num_threads)
        ]
        self.put_s: list[float] = []
        self.get_s: list[float] = []
        self.errors: list[BaseException] = []
        self.end_s = time.perf_counter() + max_s

    def work(self, rank: int) -> None:
        try:
            torch.set_num_threads(1)
            self.run(rank)
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self.errors.append(error)

    def run(self, rank: int) -> None:
        sweep, count = torch.ones(SWEEP_BYTES // 4), self.NUM_BYTES // 4
        early: dict[tuple[str, int, int], Tensor] = {}
        target = self.queues[(rank + 1) % len(self.queues)]
        for number in range(self.ROUNDS):
            own = torch.ones(count)
            sweep.mul_(1.0)
            tag = ("f", number, 0)
            start_s = time.perf_counter()
            parts = [take(own, (((0, count),),)) for _ in range(2)]
            target.put((tag, parts[0]))
            sent_s = time.perf_counter()
            like = torch.empty((count,), dtype=torch.float32)
            asked_s = time.perf_counter()
            self.get(self.queues[rank], tag, early)
            got_s = time.perf_counter()
            other = early.pop(tag)
            assert other.shape == like.shape
            result = torch.empty((2 * count,), dtype=torch.float32)
            put(result, (((0, count),),), parts[1], add=False)
            like = torch.empty((count,), dtype=torch.float32)
            put(result, (((count, 2 * count),),), other, add=False)
            end_s = time.perf_counter()
            self.put_s.append(sent_s - start_s)
            self.get_s.append(asked_s - sent_s + end_s - got_s)

    def get(
        self,
        queue: "SimpleQueue[tuple[tuple[str, int, int], Tensor]]",
        tag: tuple[str, int, int],
        early: dict[tuple[str, int, int], Tensor],
    ) -> None:
        while tag not in early:
            came, tensor = queue.get(timeout=60.0)
            early[came] = tensor


class CopyInstance:
    """Assembly of a tile: copy into, add to, or clear new memory; the source was just written by its maker.

    Forward the memory is fresh and kept until backward, as a tile that an operator keeps is.
    """

    def __init__(self, kind: str, num_bytes: int) -> None:
        self.kind, self.source = kind, torch.ones(num_bytes // 4)
        self.num_bytes, self.saved_bytes = (3 if kind == "add" else 2) * num_bytes, 0
        self.known = torch.ones(num_bytes // 4) if kind == "add" else self.source
        self.result = self.source

    def touch(self) -> None:
        self.source.mul_(1.0)

    def forward(self) -> None:
        if self.kind == "add":
            self.result = self.known + self.source
        else:
            self.result = torch.empty(self.source.shape)
            if self.kind == "copy":
                put(self.result, (((0, len(self.source)),),), self.source, add=False)
            else:
                self.result.zero_()

    def touch_gradient(self) -> None:
        self.source.mul_(1.0)

    def backward(self) -> None:
        """The same once more, into memory that was freed just before."""
        self.result = self.source
        self.forward()


class OptimizerInstance:
    """An optimizer on ``count`` equal tensors that together hold ``num_bytes``; gradients were just combined."""

    def __init__(self, factory: OptimizerFactory, count: int, num_bytes: int) -> None:
        self.tensors = [torch.ones(num_bytes // count // 4) for _ in range(count)]
        self.gradients = [torch.full_like(tensor, 1e-6) for tensor in self.tensors]
        self.optimizer = factory(self.tensors)
        self.num_bytes, self.saved_bytes = 3 * num_bytes, 0

    def touch(self) -> None:
        for tensor, gradient in zip(self.tensors, self.gradients, strict=True):
            tensor.grad = gradient

    def forward(self) -> None:
        self.optimizer.step()

    def touch_gradient(self) -> None:
        pass

    def backward(self) -> None:
        pass


def optimizer_states(factory: OptimizerFactory) -> float:
    """Numbers that it keeps for each number of a parameter: 0 for plain SGD, 1 with momentum, 2 for Adam."""
    parameter = torch.zeros(64, requires_grad=True)
    parameter.grad = torch.zeros_like(parameter)
    made = factory([parameter])
    made.step()
    kept = [value for value in made.state[parameter].values() if isinstance(value, Tensor) and value.dim()]
    return sum(value.numel() for value in kept) / parameter.numel()


def optimizer_name(factory: OptimizerFactory) -> str:
    """What kind of optimizer it is, with its settings: equal names take equal time."""
    made = factory([torch.zeros(1)])
    settings: Iterable[tuple[str, object]] = sorted(made.defaults.items())
    return type(made).__name__ + "(" + ", ".join(f"{k}={v}" for k, v in settings if v) + ")"
