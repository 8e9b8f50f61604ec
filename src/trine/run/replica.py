"""What runs in the process of one replica: the module itself under DistributedDataParallel, on its rows."""

import os
import pickle
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trine.capture.from_file import load_file
from trine.capture.inputs import Inputs
from trine.capture.mode import in_mode
from trine.capture.model import called
from trine.capture.reference import in_float64
from trine.cost.collectives import ring_bytes
from trine.run.gloo import PeerLost
from trine.run.job import output_tensors
from trine.run.synced import Together, synchronised
from trine.run.undropped import without_dropout


@dataclass(frozen=True)
class Setup:
    """What a replica is told at the start.

    files: module names of user's files → their paths, loaded first so that the pickled classes are found.
    content: (module, loss, optimizer), pickled.
    """

    rank: int
    num_engines: int
    timeout_s: float
    files: dict[str, str]
    content: bytes
    training: bool
    float64: bool


@dataclass(frozen=True)
class Rows:
    """One step's work.  share: of the loss in that of the whole batch; 0 where the replica has no row of its own, runs
    the first one and counts for nothing.  dropout: off where results are compared."""

    inputs: Inputs
    share: float
    dropout: bool
    tensors: bool


@dataclass(frozen=True)
class Done:
    """What a step left; of tensors only what was asked for, outputs by number among all leaves."""

    loss: float | None
    outputs: dict[int, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]
    bytes_sent: int


@dataclass
class Replica:
    """One replica's module, and in training its optimizer."""

    setup: Setup
    module: nn.Module
    call: nn.Module
    loss: Callable[[Any, Any], Tensor] | None
    optimizer: torch.optim.Optimizer | None
    together: Together

    def step(self, rows: Rows) -> Done:
        """One step, or one pass in inference.  Raises PeerLost where another replica is gone."""
        try:
            return self.run(rows)
        except RuntimeError as error:
            if "gloo" in str(error):
                raise PeerLost(str(error)) from error
            raise

    def run(self, rows: Rows) -> Done:
        """The step itself."""
        self.together.idle = not rows.share
        self.together.bytes_sent = 0
        with ExitStack() as within:
            within.enter_context(in_mode(self.module, self.setup.training))
            within.enter_context(torch.set_grad_enabled(self.setup.training))
            if not rows.dropout:
                within.enter_context(without_dropout())
            if self.setup.float64:
                within.enter_context(in_float64())
            loss, outputs = self.forward(rows.inputs)
        if loss is not None and self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
            (loss * (rows.share * self.setup.num_engines)).backward()  # type: ignore[no-untyped-call]
        gradients = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        kept = {name: grad.clone() for name, grad in gradients.items()} if rows.tensors else {}
        if self.optimizer is not None:
            self.optimizer.step()
        sent = self.together.bytes_sent
        if self.setup.training:
            num_bytes = sum(p.nbytes for p in self.module.parameters() if p.requires_grad)
            sent += ring_bytes(self.setup.num_engines, num_bytes)
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        state = {name: value.detach() for name, value in named.items()} if rows.tensors else {}
        return Done(None if loss is None else float(loss.detach()), outputs if rows.tensors else {}, kept, state, sent)

    def forward(self, inputs: Inputs) -> tuple[Tensor | None, dict[int, Tensor]]:
        """Loss and output tensors."""
        loss, output = called(self.call, self.loss, inputs, training=self.setup.training)
        return loss, output_tensors(output)


def start(setup: Setup, directory: Path) -> Callable[[Rows], Done]:
    """Build the replica; what it gives runs one step."""
    torch.set_num_threads(1)
    for name, path in setup.files.items():
        load_file(Path(path), name)
    module, loss, optimizer = pickle.loads(setup.content)
    together = Together(setup.num_engines)
    call: nn.Module = module
    made = None
    if setup.training:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if Path("/sys/class/net/lo").exists() else "lo0")
        dist.init_process_group(
            "gloo", store=dist.FileStore(str(directory / "store"), setup.num_engines), rank=setup.rank,
            world_size=setup.num_engines, timeout=timedelta(seconds=setup.timeout_s),
        )  # fmt: skip
        together.group = dist.new_group()
        synchronised(module, together)
        trained = [p for p in module.parameters() if p.requires_grad]
        if trained:
            call = DistributedDataParallel(module, find_unused_parameters=True)
            made = optimizer(trained)
    return Replica(setup, module, call, loss, made, together).step
