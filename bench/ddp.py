"""Data parallelism of trine beside DistributedDataParallel as it comes, one training step at a time, in turns.

    python -m bench.ddp
    python -m bench.ddp --model mobilenet_v2 --pairs 15 --batch 16 --size 128

Two engines each: two gloo processes for DistributedDataParallel; two threads, and two processes, for trine, with batch
norm local (as DistributedDataParallel has it) and synchronised (equal to one engine).  The same rows for every engine,
one intra-op thread each, SGD with momentum.  A round runs one step of each, in an order that is drawn anew, so that
whatever else the machine does hits all alike.  Printed: the median over the rounds of DistributedDataParallel's time
over trine's (above 1: trine is faster), with a 90 % interval of that median (bootstrap).
"""

import argparse
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection, get_context
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
import torchvision
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from trine.capture.model import Model, make_model
from trine.plan.build import build
from trine.run.job import Job
from trine.run.optimizer import OptimizerSpec
from trine.run.processes import Processes
from trine.run.threads import Threads

ENGINES = 2
NUM_WARMUP = 3
SGD = OptimizerSpec("sgd", lr=0.01, momentum=0.9)
MODELS = ("resnet18", "mobilenet_v2")
WAYS = {
    "threads, batch norm local": (Threads, "local"), "processes, batch norm local": (Processes, "local"),
    "threads, batch norm synced": (Threads, "synced"), "processes, batch norm synced": (Processes, "synced"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model, the whole batch and the size of its images."""

    model: str
    batch: int
    size: int

    def make(self) -> Model:
        """With random weights and inputs, the same everywhere."""
        torch.manual_seed(0)
        module = getattr(torchvision.models, self.model)()
        inputs = torch.randn(self.batch, 3, self.size, self.size), torch.randint(0, 1000, (self.batch,))
        return make_model(module, *inputs, loss=functional.cross_entropy, name=f"torchvision:{self.model}")


def peer(rank: int, case: Case, store: str, pipe: "connection.Connection[Any, Any]") -> None:
    """One process of DistributedDataParallel: a step for every message."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.FileStore(store, ENGINES), rank=rank, world_size=ENGINES)
    model = case.make()
    module = DistributedDataParallel(model.module.train())
    optimizer = SGD(module.parameters())
    rows = case.batch // ENGINES
    inputs, targets = (t[rank * rows : (rank + 1) * rows] for t in (model.inputs.args[0], model.targets))
    while pipe.recv():
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()
        pipe.send(float(loss.detach()))
    dist.destroy_process_group()


class Peer:
    """DistributedDataParallel in its processes."""

    def __init__(self, case: Case) -> None:
        context = get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.pipes, self.processes = [], []
        for rank in range(ENGINES):
            ours, theirs = context.Pipe()
            store = str(Path(self.folder.name) / "store")
            process = context.Process(target=peer, args=(rank, case, store, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def step(self) -> None:
        """One step on all of them."""
        for pipe in self.pipes:
            pipe.send(True)
        for pipe in self.pipes:
            pipe.recv()

    def close(self) -> None:
        """End them."""
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join()
        self.folder.cleanup()


class Ours:
    """One of trine's runtimes under a plan of data parallelism."""

    def __init__(self, case: Case, way: str) -> None:
        kind, batch_norm = WAYS[way]
        job = Job(case.make(), training=True)
        plan = build(job.graph(), data=ENGINES, batch_norm=batch_norm, batch=case.batch)
        self.engines = kind(job.compiled(plan).programs(), job.state(), SGD)
        self.given = job.step(plan)

    def step(self) -> None:
        """One step."""
        self.engines.step(self.given, tensors=False)

    def close(self) -> None:
        """End the engines."""
        self.engines.close()


@dataclass
class Contest:
    """All that take part, closed at the end."""

    runs: dict[str, Any]

    def __enter__(self) -> "Contest":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self.runs.values():
            run.close()

    def times(self, pairs: int) -> dict[str, list[float]]:
        """Seconds of each, by rounds."""
        result: dict[str, list[float]] = {name: [] for name in self.runs}
        order = random.Random(0)
        for number in range(NUM_WARMUP + pairs):
            names = list(self.runs)
            order.shuffle(names)
            for name in names:
                seconds = timed(self.runs[name].step)
                if number >= NUM_WARMUP:
                    result[name].append(seconds)
        return result


def timed(call: Callable[[], None]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interval(ratios: list[float], share: float = 0.9, draws: int = 4000) -> tuple[float, float]:
    """The bootstrap interval of a median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(draws))
    outside = (1 - share) / 2
    return medians[int(outside * draws)], medians[int((1 - outside) * draws) - 1]


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=tuple(WAYS))
    options = parser.parse_args()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    print(f"python -m bench.ddp {shlex.join(sys.argv[1:])}".rstrip())
    print(f"{date} · torch {torch.__version__} · {os.cpu_count()} cores · load {os.getloadavg()[0]:.1f} before")
    for name in options.model:
        case = Case(name, options.batch, options.size)
        runs = {"DistributedDataParallel": Peer(case)} | {way: Ours(case, way) for way in options.ways}
        with Contest(runs) as contest:
            times = contest.times(options.pairs)
        theirs = times.pop("DistributedDataParallel")
        print(f"\n{name}, batch {case.batch}, {case.size} px, {options.pairs} rounds")
        print(f"  DistributedDataParallel, two gloo processes: {statistics.median(theirs) * 1e3:.0f} ms")
        for way, mine in times.items():
            ratios = [a / b for a, b in zip(theirs, mine, strict=True)]
            low, high = interval(ratios)
            print(
                f"  {way:28s} {statistics.median(mine) * 1e3:5.0f} ms   {statistics.median(ratios):.3f}× "
                f"(90 % interval {low:.3f} to {high:.3f})"
            )
        print(f"  load {os.getloadavg()[0]:.1f} after", flush=True)


if __name__ == "__main__":
    main()
