"""There is not enough memory: what a plan needs by prediction, and what would fit."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from trine.capture.model import resized
from trine.cluster.cluster import Cluster
from trine.cluster.room import shortage
from trine.errors import NothingFits, OutOfMemory, TrineError
from trine.plan.build import build
from trine.plan.plan import Plan
from trine.run.job import Job
from trine.simulate.memory import memory
from trine.units import BYTES

SEARCH_S = 3.0  # a message may not keep anybody waiting
WISHES: tuple[dict[str, Any], ...] = (
    {"data": 2}, {"tensor": (2,)}, {"stages": 2}, {"data": 4}, {"tensor": (4,)}, {"stages": 4},
    {"data": 2, "stages": 2},
)  # fmt: skip
Fits = Callable[[Sequence[int]], bool]  # of bytes that each engine needs


@contextmanager
def explained(job: Job, plan: Plan) -> Iterator[None]:
    """Within it, OutOfMemory is raised with the predicted need and a plan that fits."""
    try:
        yield
    except OutOfMemory as error:
        raise explain(error, job, plan) from error


def explain(error: OutOfMemory, job: Job, plan: Plan) -> OutOfMemory:
    """The same error with what a prediction can add; libraries count as they did when the engine started."""
    need, room = max(needs_bytes(job, plan)), error.limit_bytes - error.base_bytes
    needed = f"{BYTES.format(need)} for its tensors (predicted) and {BYTES.format(error.base_bytes)} for libraries"
    return OutOfMemory(
        rank=error.rank, needed=needed, limit=error.limit, fits=fitting(job, plan, lambda needs: max(needs) <= room),
        base_bytes=error.base_bytes, limit_bytes=error.limit_bytes,
    )  # fmt: skip


def nothing_fits(job: Job, tried: Sequence[tuple[Plan, Sequence[int]]], cluster: Cluster) -> NothingFits:
    """The error where each plan needs too much on its engines, with the nearest that fits: a plan, else a batch."""
    lacks = [(plan, short) for plan, needs in tried if (short := shortage(cluster, needs)) is not None]
    plan, short = min(lacks, key=lambda lack: lack[1].excess)

    def fits(needs: Sequence[int]) -> bool:
        return len(needs) <= cluster.num_engines and shortage(cluster, needs) is None

    nearest = fitting(job, plan, fits) or smaller(job, plan, fits)
    return NothingFits(tried=len(tried), plan=plan.describe(), short=str(short), nearest=nearest)


def smaller(job: Job, plan: Plan, fits: Fits) -> str:
    """A sentence that names the first half, quarter, … of the batch with which the plan fits; empty if none does."""
    batch = job.batch
    while (batch := batch // 2) >= 1:
        m = min(plan.micro_batches, batch)
        other = msgspec.structs.replace(plan, fingerprint="", input_shapes={}, batch=batch, micro_batches=m)
        try:
            found = needs_bytes(Job(resized(job.model, batch), job.training), other)
        except TrineError:
            continue
        if fits(found):
            return f"With --batch {batch} an engine needs at most {BYTES.format(max(found))}, which fits."
    return ""


def fitting(job: Job, plan: Plan, fits: Fits) -> str:
    """A sentence that names a plan that fits; empty if none was found."""
    end = time.monotonic() + SEARCH_S
    for wishes in WISHES:
        m = min(4, job.batch) if wishes.get("stages") and job.training else 1
        try:
            other = build(job.graph_for(m), **wishes, micro_batches=m, batch=job.batch)
            found = needs_bytes(job, other)
        except TrineError:
            continue
        if fits(found) and other.key != plan.key:
            return f"The plan {other.describe()} needs {BYTES.format(max(found))} for tensors, which would fit."
        if time.monotonic() > end:
            break
    return ""


def needs_bytes(job: Job, plan: Plan) -> list[int]:
    """Of tensors on each engine."""
    return [memory(program, job.optimizer_states).total for program in job.compiled(plan).programs()]
