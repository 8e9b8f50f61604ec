"""Replicas of a model without a graph held against one engine: dropout is off, since its draws cannot be repeated."""

from collections.abc import Sequence
from dataclasses import replace

from trine.plan.plan import Axis, Plan
from trine.run.job import Job, reference_steps
from trine.run.judge import DRIFT_FACTOR, STRICT, Difference, Verdict, compare, drift_between
from trine.run.near import OneEngine, is_float32
from trine.run.replicas import Replicas
from trine.run.undropped import without_dropout

DROPOUT_OFF = "with dropout off"


def replicas_plan(num_engines: int, batch: int, shares: Sequence[float] = ()) -> Plan:
    """What replicas do, as a plan: one axis that cuts the batch."""
    return Plan(batch=batch, axes=(Axis("data", num_engines, "batch", tuple(shares)),))


def judge_replicas(
    job: Job, num_engines: int, shares: Sequence[float] = (), num_steps: int = 3, *, float32: bool = False
) -> Verdict:
    """Run the replicas of a job, in float64, and hold every step against one engine; with ``float32`` also the first
    step in that type, if it is the model's own."""
    num_steps = num_steps if job.training else 1
    rows = ((0, job.batch),)
    names = {name: (name,) for name, _ in job.module.named_parameters()}
    names |= {name: (name,) for name, _ in job.module.named_buffers()}
    differences: list[Difference] = []
    drifts: list[float] = []
    sent: list[int] = []
    with without_dropout():
        steps = list(reference_steps(job, rows, (1.0,), num_steps))
        moved = reference_steps(job, rows, (1.0,), num_steps, nudge=1)
        drifts += [drift_between(a, b) if job.training else 0.0 for a, b in zip(steps, moved, strict=True)]
    with Replicas(job, job.optimizer, num_engines, shares, dropout=False) as replicas:
        for number, want in enumerate(steps):
            whole = replicas.step()
            sent = sent or whole.bytes_sent
            limit = STRICT if number == 0 else max(STRICT, DRIFT_FACTOR * drifts[number])
            differences += compare(job, whole, want, (1.0,), number, limit, names)
    named = [replace(d, where=f"{d.where}, {DROPOUT_OFF}") for d in differences]
    plan = replicas_plan(num_engines, job.batch, shares)
    narrow = Job(job.model, job.training)
    near = None
    if float32 and is_float32(narrow):
        with Replicas(narrow, narrow.optimizer, num_engines, shares, dropout=False) as replicas:
            whole = replicas.step()
        with without_dropout():
            near = OneEngine(narrow, rows, (1.0,), steps[0]).near(whole, names)
    return Verdict(plan, "processes", tuple(named), tuple(drifts), (), tuple(sent), near)
