"""An engine ran out of memory: what its plan needs by prediction, and a plan that would fit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trine.errors import OutOfMemory, TrineError
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


@contextmanager
def explained(job: Job, plan: Plan) -> Iterator[None]:
    """Within it, OutOfMemory is raised with the predicted need and a plan that fits."""
    try:
        yield
    except OutOfMemory as error:
        raise explain(error, job, plan) from error


def explain(error: OutOfMemory, job: Job, plan: Plan) -> OutOfMemory:
    """The same error with what a prediction can add; libraries count as they did when the engine started."""
    need, room = predicted_bytes(job, plan), error.limit_bytes - error.base_bytes
    needed = f"{BYTES.format(need)} for its tensors (predicted) and {BYTES.format(error.base_bytes)} for libraries"
    return OutOfMemory(
        rank=error.rank, needed=needed, limit=error.limit, fits=fitting(job, plan, room), base_bytes=error.base_bytes,
        limit_bytes=error.limit_bytes,
    )  # fmt: skip


def fitting(job: Job, plan: Plan, room: int) -> str:
    """A sentence that names a plan whose fullest engine needs at most ``room`` bytes; empty if none was found."""
    end = time.monotonic() + SEARCH_S
    for wishes in WISHES:
        m = min(4, job.batch) if wishes.get("stages") and job.training else 1
        try:
            other = build(job.graph_for(m), **wishes, micro_batches=m, batch=job.batch)
            found = predicted_bytes(job, other)
        except TrineError:
            continue
        if found <= room and other.describe() != plan.describe():
            return f"The plan {other.describe()} needs {BYTES.format(found)} for tensors, which would fit."
        if time.monotonic() > end:
            break
    return ""


def predicted_bytes(job: Job, plan: Plan) -> int:
    """Of tensors on the fullest engine."""
    return max(memory(program).total for program in job.compiled(plan).programs())
