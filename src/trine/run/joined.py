"""Joined: this process is one engine among processes that somebody else started (``torchrun``)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

from trine.errors import BadInput
from trine.program.program import Program
from trine.run.collect import Whole, report, together
from trine.run.engine import Engine, Step
from trine.run.gloo import Gloo, make_groups
from trine.run.routes import exchanges, groups, routes
from trine.run.wire import Answer


class Joined:
    """The engine of this rank; made on every rank at once, and every rank calls ``step``.

    The process group that is there is used; if there is none, one is made as ``torchrun`` describes it.
    """

    def __init__(
        self, program: Program, state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None, *, timeout_s: float = 60.0,
    ) -> None:  # fmt: skip
        self.owns_group = not dist.is_initialized()
        if self.owns_group:
            dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        rank, size = dist.get_rank(), dist.get_world_size()
        if (rank, size) != (program.rank, program.num_engines):
            raise BadInput(
                f"Process {rank} of {size} was given the program of engine {program.rank} of {program.num_engines}.",
                "Each process runs the program of its own rank, and there are as many processes as engines.",
                f"Start {program.num_engines} processes and give each program(rank).",
            )
        known: list[tuple[object, ...]] = [()] * size
        dist.all_gather_object(known, (exchanges(program), groups([program])))
        ways = routes({r: item[0] for r, item in enumerate(known)}, len(program.batches))  # type: ignore[misc]
        sets = sorted({group for item in known for group in item[1]})  # type: ignore[attr-defined]
        self.transport = Gloo(rank, ways[rank], make_groups(sets), make_groups(sets, own=True))
        self.engine = Engine(program, state, self.transport, None, optimizer)
        self.bytes_received = [0] * size

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step; every rank gets the whole."""
        own = replace(step, losses={}, results={})
        self.transport.begin()
        for _ in self.engine.run(own):
            pass
        self.transport.finish()
        mine = Answer(report(self.engine, own, tensors=tensors), self.transport.bytes_received)
        answers = [mine] * dist.get_world_size()
        dist.all_gather_object(answers, mine)
        self.bytes_received = [answer.bytes_received for answer in answers]
        return together([answer.report for answer in answers])

    def close(self) -> None:
        """Leave the process group, if it was made here."""
        if self.owns_group and dist.is_initialized():
            dist.destroy_process_group()

    def __enter__(self) -> "Joined":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
