"""Lockstep: all engines in one process, one after another, each until it must wait.  For proofs, not for speed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trine.lower.segment import Library
from trine.program.program import Program
from trine.run.collect import Whole, report, together
from trine.run.engine import Engine, Step
from trine.run.record import traced
from trine.run.transport import Mail
from trine.trace.trace import Trace


class Lockstep:
    """Engines of a plan in one process."""

    def __init__(
        self, programs: Sequence[Program], state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
    ) -> None:  # fmt: skip
        boxes: dict = {}  # type: ignore[type-arg]
        library = Library()
        self.boxes = boxes
        self.engines = [Engine(p, state, Mail(p.rank, boxes), library, optimizer) for p in programs]

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step on every engine and put the tiles together.  RuntimeError where nobody can go on."""
        steps = [replace(step, losses={}, results={}) for _ in self.engines]
        running = {e.program.rank: e.run(s) for e, s in zip(self.engines, steps, strict=True)}
        while running:
            before = (len(running), sum(e.transport.bytes_sent for e in self.engines), len(self.boxes))
            for rank in list(running):
                try:
                    next(running[rank])
                except StopIteration:
                    del running[rank]
            after = (len(running), sum(e.transport.bytes_sent for e in self.engines), len(self.boxes))
            if running and before == after:
                raise RuntimeError(f"engines {sorted(running)} wait for messages that nobody sends")
        if self.boxes:
            raise RuntimeError(f"messages that nobody received: {list(self.boxes)[:3]}")
        return together([report(e, s, tensors=tensors) for e, s in zip(self.engines, steps, strict=True)])

    def trace(self, step: Step, label: str = "") -> Trace:
        """Run one step; when each engine did what."""
        return traced(self, step, label)

    def close(self) -> None:
        """Nothing was started."""
