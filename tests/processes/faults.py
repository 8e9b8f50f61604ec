"""Optimizers that fail on engine 1, in ways that a test asks for.  Importable in other processes."""

import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

ROOM_BYTES = 256 << 20


class Failing(torch.optim.SGD):
    """SGD whose second step fails."""

    kind = ""
    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == 2:
            fail(self.kind)
        return super().step(closure)


def fail(kind: str) -> None:
    """Fail in the way that has this name."""
    if kind == "exception":
        raise ZeroDivisionError("on purpose")
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(7)
    if kind == "memory":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.ones(4 * ROOM_BYTES, dtype=torch.uint8)


@dataclass(frozen=True)
class FailsOnOne:
    """Makes the optimizers; that of engine 1 fails."""

    kind: str

    def __call__(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        optimizer = Failing(parameters, lr=0.1)
        optimizer.kind = self.kind if dist.get_rank() == 1 else ""
        return optimizer


def refuses(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Fails at the start of engine 1."""
    if dist.get_rank() == 1:
        raise ZeroDivisionError("at the start, on purpose")
    return torch.optim.SGD(parameters, lr=0.1)
