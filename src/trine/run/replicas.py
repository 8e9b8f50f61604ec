"""Replicas: data parallelism for a model without a graph, on torch's DistributedDataParallel in processes.

The loss of each replica is weighted by its rows, so that gradients are those of the mean over the whole batch however
unequal the slices are; a replica without a row (a short last batch) takes part with weight zero.  Batch norm is over
all rows.  In inference replicas do not talk.
"""

import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trine.capture.from_file import LOADED_AS
from trine.capture.inputs import Inputs
from trine.errors import BadInput
from trine.graph.part import even
from trine.run.collect import Whole
from trine.run.job import Job
from trine.run.processes import OPTIMIZER_IMPORTS
from trine.run.replica import Done, Rows, Setup, start
from trine.run.supervisor import Supervised, Supervisor
from trine.run.wire import pack

TIMEOUT_S = 60.0


class Replicas(Supervised):
    """One process for each replica, alive between steps; use as a context manager or call ``close``.

    shares: how much of the batch each engine gets; equal parts if not said.
    dropout: as the model has it, or off.
    """

    def __init__(
        self, job: Job, optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None, num_engines: int,
        shares: Sequence[float] | None = None, *, dropout: bool = True, timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        self.job, self.dropout = job, dropout
        self.shares = tuple(shares or (1.0,) * num_engines)
        if len(self.shares) != num_engines:
            raise BadInput(
                f"{len(self.shares)} shares were given for {num_engines} engines.",
                "Each engine has one.",
                "Give as many.",
            )
        content = picklable(job, optimizer)
        self.folder = tempfile.TemporaryDirectory(prefix="trine-")
        self.supervisor = None
        try:
            for rank in range(num_engines):
                setup = Setup(rank, num_engines, timeout_s, user_files(), content, job.training, job.float64)
                (Path(self.folder.name) / f"engine{rank}").write_bytes(pickle.dumps(setup))
            self.supervisor = Supervisor(
                num_engines, self.folder.name, "spawn", with_main=b"__main__" in content, preload=OPTIMIZER_IMPORTS,
                start=start,
            )  # fmt: skip
            self.supervisor.wait_ready()
        except BaseException:
            self._end()
            raise

    def step(self, inputs: Inputs | None = None, *, tensors: bool = True) -> Whole:
        """One step over the job's own inputs or others of the same form, whose batch may be smaller."""
        supervisor = self.supervisor
        if supervisor is None:
            raise BadInput("These engines were ended.", "Only running ones make a step.", "Start new ones.")
        whole = inputs or self.job.inputs
        try:
            parts = cut_rows(whole.batch, self.shares)
            for rank, (low, high) in enumerate(parts):
                mine = whole.map(_rows(low, high) if high > low else _rows(0, 1))
                share = (high - low) / whole.batch
                supervisor.send(rank, pack(Rows(mine, share, self.dropout, tensors)))
            done: dict[int, Done] = supervisor.gather()
        except BaseException:
            self._end()
            raise
        return joined([done[rank] for rank in range(len(parts))], parts)


def user_files() -> dict[str, str]:
    """Module names of the user's files that were loaded, and where they are."""
    return {n: str(m.__file__) for n, m in sys.modules.items() if n.startswith(LOADED_AS)}


def cut_rows(batch: int, shares: Sequence[float]) -> list[tuple[int, int]]:
    """Each engine's rows of a batch; none (low = high) where there are fewer than engines."""
    return [part[0] if part else (0, 0) for part in even(batch, shares)]


def _rows(low: int, high: int) -> Callable[[Tensor, int | None, int], Tensor]:
    return lambda t, dim, number: t if dim is None else t.narrow(dim, low, high - low)


def joined(done: Sequence[Done], parts: Sequence[tuple[int, int]]) -> Whole:
    """The whole of what replicas left: outputs by rows, the loss by its weights, the rest from the first one."""
    sizes = [high - low for low, high in parts]
    losses = [d.loss * size / sum(sizes) for d, size in zip(done, sizes, strict=True) if d.loss is not None and size]
    results = {}
    for number in done[0].outputs:
        pieces = [d.outputs[number] for d, size in zip(done, sizes, strict=True) if size]
        rowed = all(t.dim() and len(t) == size for t, size in zip(pieces, (s for s in sizes if s), strict=True))
        results[str(number), 0] = torch.cat(pieces) if rowed else pieces[0]
    loss = {0: torch.tensor(sum(losses), dtype=torch.float64)} if losses else {}
    return Whole(loss, results, done[0].gradients, done[0].state, [d.bytes_sent for d in done])


def picklable(job: Job, optimizer: Any) -> bytes:
    """Module, loss and optimizer for other processes; BadInput if they cannot go there."""
    try:
        return pickle.dumps((job.module, job.model.loss, optimizer))
    except Exception as error:  # whatever the parts of a user's module raise
        raise BadInput(
            f"{job.model.name} cannot be sent to other processes: {error}.",
            "A model without a graph runs in processes: its classes and its loss must be defined at the top of a file.",
            "Define a lambda or an inner function there by its own name.",
        ) from error
