"""The three ways to run Programs, by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from trine.errors import UnknownName
from trine.program.check import check
from trine.program.program import Program
from trine.run.collect import Whole
from trine.run.engine import Step
from trine.run.joined import joined
from trine.run.lockstep import Lockstep
from trine.run.optimizer import refuse_cut_weights
from trine.run.processes import Processes
from trine.run.threads import Threads
from trine.trace.trace import Trace

Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


class Runner(Protocol):
    """Engines that are ready to step."""

    def step(self, step: Step, *, tensors: bool = True) -> Whole:
        """One step on all engines; with ``tensors`` everything they hold comes back whole."""

    def trace(self, step: Step, label: str = "") -> Trace:
        """One step, recorded: when each engine did what."""

    def close(self) -> None:
        """End what was started."""


RUNNERS: dict[str, Callable[..., Any]] = {"lockstep": Lockstep, "threads": Threads, "processes": Processes}
ALL: dict[str, Callable[..., Any]] = {**RUNNERS, "joined": joined}  # the last where somebody else starts processes


def runner(on: str, programs: Sequence[Program], state: Mapping[str, Tensor], optimizer: Optimizer | None) -> Runner:
    """Engines for these Programs, which are checked first; the caller closes them."""
    if on not in ALL:
        raise UnknownName("runtime", on, ALL)
    check(programs)
    if optimizer is not None:
        refuse_cut_weights(optimizer, programs)
    result: Runner = ALL[on](programs, state, optimizer)
    return result
