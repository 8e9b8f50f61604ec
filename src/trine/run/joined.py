"""Joined: this process is one engine among processes that somebody else started (``torchrun``)."""

import atexit
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
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
from trine.run.record import measured_trace, recorded
from trine.run.routes import exchanges, groups, routes
from trine.run.wire import Answer
from trine.trace.trace import Trace


class Joined:
    """The engine of this rank; made on every rank at once, and every rank calls ``step``.

    The process group that is there is used; if there is none, one is made as ``torchrun`` describes it.
    """

    def __init__(
        self, program: Program, state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None, *, timeout_s: float = 60.0,
        made_here: bool = False,
    ) -> None:  # fmt: skip
        """``made_here``: the group that is there is left with this one; else whoever made it ends it."""
        self.owns_group = connect(program.num_engines, timeout_s) or made_here
        try:
            alike(state, "were made with different weights", "Seed torch in the same way, or load the same file.")
            self.transport = transport(program)
            self.engine = Engine(program, state, self.transport, None, optimizer)
        except BaseException:
            self.close()
            raise
        self.bytes_received = [0] * program.num_engines

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step; every rank gets the whole."""
        return together([answer.report for answer in self._step(step, tensors=tensors)])

    def trace(self, step: Step, label: str = "") -> Trace:
        """Run one step; when each engine did what, on every rank.  Clocks are those of one machine."""
        answers = self._step(step, tensors=False, watched=[self.engine])
        stages = [0] * len(answers)
        dist.all_gather_object(stages, self.engine.program.stage)
        return measured_trace([answer.spans for answer in answers], stages, label)

    def _step(self, step: Step, *, tensors: bool, watched: Sequence[Engine] = ()) -> list[Answer]:
        alike(step.inputs, "were given different batches", "Give each the whole batch; it takes its own rows.")
        own = replace(step, losses={}, results={})
        with recorded(watched) as recorders:
            self.transport.begin()
            for _ in self.engine.run(own):
                pass
            self.transport.finish()
        spans = tuple(span for recorder in recorders for span in recorder.spans)
        mine = Answer(report(self.engine, own, tensors=tensors), self.transport.bytes_received, spans)
        answers = [mine] * dist.get_world_size()
        dist.all_gather_object(answers, mine)
        self.bytes_received = [answer.bytes_received for answer in answers]
        return answers

    def close(self) -> None:
        """Leave the process group, if it was made here."""
        if self.owns_group:
            leave()

    def __enter__(self) -> "Joined":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def alike(tensors: Mapping[str, Tensor], what: str, remedy: str) -> None:
    """Raise BadInput on every rank unless all have the same tensors, by shapes, types and checksums of their bytes."""
    mine = {name: _digest(tensor) for name, tensor in tensors.items()}
    sums = [mine] * dist.get_world_size()
    dist.all_gather_object(sums, mine)
    for rank, theirs in enumerate(sums):
        name = next((n for n in {**sums[0], **theirs} if sums[0].get(n) != theirs.get(n)), None)
        if name is not None:
            raise BadInput(f"The processes {what}: {name} of process {rank} is not that of process 0.", "", remedy)


def _digest(tensor: Tensor) -> tuple[tuple[int, ...], str, int]:
    """Shape, type, and a checksum that knows the order of the bytes."""
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return tuple(tensor.shape), str(tensor.dtype), zlib.crc32(flat.numpy())


def connect(num_engines: int, timeout_s: float = 60.0) -> bool:
    """Make the process group if there is none, and tell whether it was made.  Raises BadInput if there are more or
    fewer processes than engines."""
    owned = not dist.is_initialized()
    size = int(os.environ.get("WORLD_SIZE", "1")) if owned else dist.get_world_size()
    if size != num_engines:
        raise BadInput(
            f"{size} processes were started, and the plan has {num_engines} engines.", "Each process is one engine.",
            f"Start {num_engines} processes (torchrun --nproc-per-node), or choose a plan of {size} engines.",
        )  # fmt: skip
    if owned:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        atexit.register(leave)  # threads of gloo that outlive the interpreter abort the process
    return owned


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def transport(program: Program) -> Gloo:
    """This rank's end of all links; made on every rank at once, each with the Program of its own."""
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
    return Gloo(rank, ways[rank], make_groups(sets), make_groups(sets, own=True))


def joined(
    programs: Sequence[Program], state: Mapping[str, Tensor],
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
) -> Joined:  # fmt: skip
    """The engine of this rank, given the Programs of all.  Raises BadInput if there are more or fewer processes."""
    made_here = connect(len(programs))
    return Joined(programs[dist.get_rank()], state, optimizer, made_here=made_here)
