"""Processes: one engine per process on this machine, over ``torch.distributed``; started, watched and ended by us."""

import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from trine.errors import BadInput
from trine.program.program import Program
from trine.run.collect import Whole, together
from trine.run.engine import Step
from trine.run.memory import Usage
from trine.run.record import measured_trace
from trine.run.routes import exchanges, groups, routes
from trine.run.supervisor import Supervised, Supervisor
from trine.run.wire import Answer, Board, Job, Setup, pack
from trine.trace.trace import Trace

OPTIMIZER_IMPORTS = ("torch._dynamo",)  # what the first torch.optim.Optimizer of a process imports, in seconds


class Processes(Supervised):
    """One process for each engine, alive between steps; use as a context manager or call ``close``.

    optimizer: an ``OptimizerSpec``, or a function of the parameters that can be pickled.
    timeout_s: how long an engine waits for a message; a step as a whole has no limit.
    watched: live tensors are counted (see ``usage``), which takes time.
    start_method: ``"spawn"``, or ``"forkserver"``, which imports torch once and makes every later start quick.
    """

    def __init__(
        self, programs: Sequence[Program], state: Mapping[str, Tensor],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None, *, backend: str = "gloo",
        device: str = "cpu", timeout_s: float = 60.0, intra_op_threads: int = 1,
        watched: bool = False, start_method: Literal["spawn", "forkserver"] = "spawn",
    ) -> None:  # fmt: skip
        if (backend, device) != ("gloo", "cpu"):
            raise BadInput(
                f"Processes were asked for with backend {backend} on device {device}.",
                "They run on gloo and the CPU.", 'Use backend="gloo" and device="cpu".',
            )  # fmt: skip
        self.programs, self.bytes_received = tuple(programs), [0] * len(programs)
        self.folder = tempfile.TemporaryDirectory(prefix="trine-")
        directory = Path(self.folder.name)
        self.board = Board(directory)
        self.supervisor = None
        try:
            pickled = picklable(optimizer)
            self._write(
                directory, state, optimizer=pickled, timeout_s=timeout_s, intra_op_threads=intra_op_threads,
                watched=watched,
            )  # fmt: skip
            with_main = b"__main__" in pickled
            preload = () if optimizer is None else OPTIMIZER_IMPORTS
            self.supervisor = Supervisor(
                len(self.programs), self.folder.name, start_method, with_main=with_main, preload=preload
            )
            self.supervisor.wait_ready()
            (directory / "state").unlink()
        except BaseException:
            self._end()
            raise

    def _write(self, directory: Path, state: Mapping[str, Tensor], **told: Any) -> None:
        """What the engines read when they start: their own Program and what all are ``told``, and the state that all
        of them map."""
        used = {name for p in self.programs for name in (*p.parameters.values(), *p.stored.values())}
        torch.save({name: state[name].detach().cpu() for name in sorted(used)}, directory / "state")
        ways = routes({p.rank: exchanges(p) for p in self.programs}, len(self.programs[0].batches))
        groups_ = groups(self.programs)
        for program in self.programs:
            setup = Setup(program, ways[program.rank], groups_, num_engines=len(self.programs), **told)
            (directory / f"engine{program.rank}").write_bytes(pickle.dumps(setup))

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """Run one step; EngineFailed names the engine that failed first, and all are ended then."""
        return together([answer.report for answer in self._step(step, tensors=tensors)])

    def trace(self, step: Step, label: str = "") -> Trace:
        """Run one step; when each engine did what."""
        answers = self._step(step, tensors=False, recorded=True)
        return measured_trace([answer.spans for answer in answers], [p.stage for p in self.programs], label)

    def usage(self, step: Step, num_steps: int) -> list[Usage]:
        """Run so many steps, and as many again: what each engine's process had at most, tensors in all of them and
        resident in the latter.  Tensors are 0 unless these engines are ``watched``."""
        for number in range(2 * num_steps):
            answers = self._step(step, tensors=False, afresh=number == num_steps)
        return [answer.usage for answer in answers]

    def _step(self, step: Step, *, tensors: bool, recorded: bool = False, afresh: bool = False) -> list[Answer]:
        supervisor = self.supervisor
        if supervisor is None:
            raise BadInput("These engines were ended.", "Only running ones make a step.", "Start new ones.")
        try:
            mapped = self.board.write(step.inputs)
            bare = replace(step, inputs={}, losses={}, results={})
            job = pack(Job(bare, tensors, self.board.path, mapped, recorded, afresh))
            for program in self.programs:
                supervisor.send(program.rank, job)
            answers: dict[int, Answer] = supervisor.gather()
        except BaseException:
            self._end()
            raise
        self.bytes_received = [answers[rank].bytes_received for rank in sorted(answers)]
        return [answers[rank] for rank in sorted(answers)]


def picklable(optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None) -> bytes:
    """The optimizer for other processes; BadInput if it cannot go there."""
    try:
        return pickle.dumps(optimizer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"The optimizer {optimizer!r} cannot be sent to other processes: {error}.",
            "What can is an OptimizerSpec, or a function defined at the top of a module.",
            'For example: optimizer=OptimizerSpec("sgd", lr=0.1), or engines that are threads.',
        ) from None
