"""The cells of the sweep: a model at a batch, under a plan, on a runtime; and the worker that judges some of them.

A worker takes cells of one model, batch and number of micro-batches, which share a reference, and prints one line of
JSON when it begins a cell and one when the cell is judged:

    python -m bench.verify_cells resnet18/b5/data 2/lockstep resnet18/b5/data 3:1/threads
"""

import ctypes
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench.workers import serve

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.cli.values import Setting
from trine.plan.build import build, cut_sizes
from trine.plan.plan import Plan
from trine.run.distance import Near
from trine.run.job import Job, Reference
from trine.run.judge import Expected, Verdict, expected, judge
from trine.run.near import judge_float32, one_engine
from trine.run.processes import Processes
from trine.run.runner import ALL, RUNNERS

PRELOAD = ("torch._dynamo", "torch.export", "torchvision.models", "transformers.models.gpt2.modeling_gpt2")
NUM_STEPS = 3
REFERENCES = "TRINE_BENCH_REFERENCES"  # in the environment: the folder of the references of one sweep


@dataclass(frozen=True)
class Subject:
    """A model of the sweep.  gigabytes: what a worker needs at most in one process; processes: with engines in their
    own, which hold and report copies; four: with four copies of all weights in one process.  Where processes is given,
    plans that need whole copies run there at one batch only.
    """

    spec: str
    settings: tuple[tuple[str, str], ...] = ()
    size: int | None = 64
    seq: int | None = None
    gigabytes: float = 5.0
    processes: float | None = None
    four: float = 0.0

    @property
    def huge(self) -> bool:
        return self.processes is not None


SUBJECTS = {
    "vgg16_bn": Subject("torchvision:vgg16_bn", gigabytes=16.0, processes=18.0, four=21.5),
    "vit_b_16": Subject("torchvision:vit_b_16", (("image_size", "64"),), gigabytes=12.0, processes=14.5, four=19.0),
    "gpt2": Subject("hf:gpt2", (("n_layer", "4"), ("n_embd", "192")), size=None, seq=64),
    "convnext_tiny": Subject("torchvision:convnext_tiny", gigabytes=5.0),
    "resnet50": Subject("torchvision:resnet50", gigabytes=5.0),
    "densenet121": Subject("torchvision:densenet121"),
    "efficientnet_b0": Subject("torchvision:efficientnet_b0", gigabytes=3.0),
    "resnet18": Subject("torchvision:resnet18", gigabytes=2.7),
    "mobilenet_v2": Subject("torchvision:mobilenet_v2", gigabytes=2.7),
}
BATCHES = (4, 5)  # 5 rows do not divide: by 2 engines, by shares of 3:1, in 4 micro-batches
SPACE, FEATURES = "space", "features"  # height or sequence, heads or channel: what the model has
PLANS: dict[str, dict[str, Any]] = {
    "data 2": {"data": 2},
    "data 3:1": {"data": 2, "shares": (3, 1)},
    "gpipe 2": {"stages": 2, "micro_batches": 4, "schedule": "gpipe"},
    "1f1b 2": {"stages": 2, "micro_batches": 4},
    "space 2": {"tensor": (2,), "cuts": (SPACE,)},
    "features 2": {"tensor": (2,), "cuts": (FEATURES,)},
    "space 3:2:1": {"tensor": (3,), "cuts": (SPACE,), "shares": (3, 2, 1)},
    "features 3:2:1": {"tensor": (3,), "cuts": (FEATURES,), "shares": (3, 2, 1)},
    "data 2 x space 2": {"data": 2, "tensor": (2,), "cuts": (SPACE,)},
    "data 2 x features 2": {"data": 2, "tensor": (2,), "cuts": (FEATURES,)},
    "stages 2 x space 2": {"stages": 2, "micro_batches": 2, "tensor": (2,), "cuts": (SPACE,)},
    "stages 2 x features 2": {"stages": 2, "micro_batches": 2, "tensor": (2,), "cuts": (FEATURES,)},
}
WHOLE = ("data 2", "data 3:1", "space 2", "space 3:2:1", "data 2 x space 2", "stages 2 x space 2")
FOUR_WHOLE = ("data 2 x space 2",)  # copies of all weights
RUNTIMES = tuple(RUNNERS)


@dataclass(frozen=True)
class Cell:
    """One entry of the table."""

    model: str
    batch: int
    plan: str
    on: str

    @property
    def key(self) -> str:
        return f"{self.model}/b{self.batch}/{self.plan}/{self.on}"

    @property
    def apart(self) -> bool:
        """Whether it needs much more memory than its model's other cells."""
        return SUBJECTS[self.model].huge and (self.on == "processes" or self.plan in FOUR_WHOLE)

    @property
    def gigabytes(self) -> float:
        subject = SUBJECTS[self.model]
        if not self.apart:
            return subject.gigabytes
        return subject.four if self.plan in FOUR_WHOLE else subject.processes or subject.gigabytes

    @property
    def group(self) -> tuple[str, int, int, float]:
        """What it shares a reference and a worker with."""
        return self.model, self.batch, PLANS[self.plan].get("micro_batches", 1), self.gigabytes

    @staticmethod
    def parse(key: str) -> "Cell":
        model, batch, plan, on = key.split("/")
        return Cell(model, int(batch.removeprefix("b")), plan, on)


def all_cells() -> list[Cell]:
    """Every cell of the sweep, the heaviest models first."""
    cells = [
        Cell(model, batch, plan, on) for model in SUBJECTS for batch in BATCHES for plan in PLANS for on in RUNTIMES
    ]
    return [cell for cell in cells if not left_out(cell)]


def left_out(cell: Cell) -> bool:
    """Of huge models on processes: four whole copies; plans with two, but for the batch that does not divide."""
    if not cell.apart or cell.on != "processes" or cell.plan not in WHOLE:
        return False
    return cell.batch != BATCHES[-1] or cell.plan in FOUR_WHOLE


def quick_cells() -> list[Cell]:
    """A quarter: every model under every plan at the batch that does not divide, and under every second one at the
    other; the runtimes take turns."""

    def wanted(cell: Cell) -> bool:
        turn = list(SUBJECTS).index(cell.model) + list(PLANS).index(cell.plan)
        odd = cell.batch == BATCHES[-1]
        return cell.on == RUNTIMES[(turn + odd) % len(RUNTIMES)] and (odd or turn % 2 == 0)

    return [cell for cell in all_cells() if wanted(cell)]


def light_cells() -> list[Cell]:
    """A quarter of the models that two workers can hold at once on an ordinary machine."""
    return [cell for cell in quick_cells() if not SUBJECTS[cell.model].huge]


def make_job(subject: Subject, batch: int, *, training: bool = True, float64: bool = False) -> Job:
    """A model at a batch."""
    settings = tuple(Setting(key, value) for key, value in subject.settings)
    wishes = Wishes(set=settings, size=subject.size, seq=subject.seq, batch=batch)
    return Job(load_model(subject.spec, wishes, batch), training, float64)


def make_plan(name: str, job: Job) -> Plan:
    """The plan of a cell, with the dimensions that its model has."""
    wishes = dict(PLANS[name])
    graph = job.graph_for(wishes.get("micro_batches", 1))
    sizes = cut_sizes(graph)
    found = {
        SPACE: "height" if "height" in sizes else "sequence",
        FEATURES: "heads" if "heads" in sizes else "channel",
    }
    wishes["cuts"] = tuple(found[cut] for cut in wishes.get("cuts", ()))
    return build(graph, batch=job.batch, **wishes)


def judged(cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
    """A record when a cell of one group begins, and one when it is judged."""
    cells = list(cells)
    job = make_job(SUBJECTS[cells[0].model], cells[0].batch, float64=True)
    narrow = Job(job.model, job.training, captures=job.captures)
    known, one = None, None
    for cell in cells:
        yield {"begin": cell.key}
        start_s = time.monotonic()
        plan = make_plan(cell.plan, job)
        if known is None or one is None:
            known = from_disk(cell, job, plan) if SUBJECTS[cell.model].huge else expected(job, plan, NUM_STEPS)
            one = one_engine(narrow, plan, known.steps[0])
            give_back()
        record = described(cell, judge(job, plan, cell.on, NUM_STEPS, known))
        if cell.on == RUNTIMES[0]:
            record |= float32(judge_float32(narrow, plan, cell.on, one))
        yield record | {"seconds": round(time.monotonic() - start_s, 1)}
        give_back()


def give_back() -> None:
    """Memory that is free goes back to the system: engines in other processes may need it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def from_disk(cell: Cell, job: Job, plan: Plan) -> Expected:
    """One engine's steps with their tensors in a mapped file, which takes no memory that others need.  Workers of one
    sweep share those of the whole batch, which three of them read."""
    folder = os.environ.get(REFERENCES)
    if folder is None or plan.micro_batches > 1:
        with tempfile.TemporaryDirectory(prefix="trine-") as own:
            return mapped(Path(own) / "reference", job, plan)
    return mapped(Path(folder) / f"{cell.model}-{cell.batch}-{plan.micro_batches}", job, plan)


def mapped(file: Path, job: Job, plan: Plan) -> Expected:
    """Read a reference, made first if it is not there."""
    if not file.exists():
        known = expected(job, plan, NUM_STEPS)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        torch.save({"steps": [vars(step) for step in known.steps], "drift": known.drift}, part)
        part.rename(file)
        del known
        give_back()
    with torch.serialization.safe_globals([frozenset]):
        kept = torch.load(file, mmap=True, weights_only=True)
    return Expected([Reference(**step) for step in kept["steps"]], kept["drift"])


def described(cell: Cell, verdict: Verdict) -> dict[str, Any]:
    """A verdict as a record."""
    worst, first = verdict.worst(), [d for d in verdict.differences if d.step == 0]
    return {
        "key": cell.key,
        "equal": verdict.equal,
        "first": max(d.value for d in first),
        "worst": f"{worst.kind} of step {worst.step + 1} at {worst.where}: {worst.value:.1e}, limit {worst.limit:.1e}",
        "drift": verdict.drift,
        "shares": {share.cut: share.of_having for share in verdict.shares},
        "plan": verdict.plan.describe(),
    }


def float32(near: Near) -> dict[str, Any]:
    """The plan's first step in float32 as a record."""
    return {
        "float32": near.enough,
        "float32_distance": near.distance,
        "float32_one_engine": near.one_engine,
    }


def main(keys: list[str]) -> None:
    """Judge the cells whose keys are given."""
    torch.set_num_threads(1)
    ALL["processes"] = partial(Processes, start_method="forkserver", timeout_s=300.0)
    serve([Cell.parse(key) for key in keys], judged)


if __name__ == "__main__":
    main(sys.argv[1:])
