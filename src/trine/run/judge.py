"""Parallel equals single: a plan's steps held against those of one engine, value by value.

In float64, step 1 is judged strictly: every difference is at most ``STRICT``, outputs and loss relative to their own
norm, gradients, buffers and weights relative to the norm of all of their kind (a bias before a batch norm has a
gradient of zero).  Later steps may differ by that or by ``DRIFT_FACTOR`` times what one engine
differs from itself when its weights start one unit in the last place higher: rounding grows from step to step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from trine.graph.graph import Graph
from trine.plan.plan import Plan
from trine.program.compile import batches
from trine.program.share import Share, shares
from trine.run.collect import Whole
from trine.run.distance import Near, apart, by_name, outputs_apart, relative
from trine.run.job import Job, Reference, reference_steps
from trine.run.runner import runner

STRICT = 1e-9
DRIFT_FACTOR = 100.0
ONE_ENGINE = "one engine"


@dataclass(frozen=True)
class Difference:
    """One kind of value in one step: the largest relative difference, where it is, and what was allowed."""

    step: int
    kind: str
    value: float
    where: str
    limit: float

    @property
    def equal(self) -> bool:
        return self.value <= self.limit  # a NaN is not


@dataclass(frozen=True)
class Verdict:
    """Whether a plan on a runtime equals one engine; ``float32`` is its first step in that type, where it was asked.

    against: what it was held against.
    """

    plan: Plan
    on: str
    differences: tuple[Difference, ...]
    drift: tuple[float, ...]
    shares: tuple[Share, ...]
    bytes_sent: tuple[int, ...]
    float32: Near | None = None
    against: str = ONE_ENGINE

    @property
    def equal(self) -> bool:
        near = self.float32 is None or self.float32.enough
        return near and all(difference.equal for difference in self.differences)

    def worst(self) -> Difference:
        """The difference that is largest beside its limit."""
        return max(self.differences, key=lambda d: d.value / d.limit if d.value == d.value else float("inf"))


@dataclass
class Expected:
    """The reference of a way to stream the batch: kept, since many plans share it."""

    steps: list[Reference]
    drift: tuple[float, ...]


def expected(job: Job, plan: Plan, num_steps: int = 3) -> Expected:
    """One engine's steps over the micro-batches of a plan, and its drift."""
    rows = batches(job.batch, plan.micro_batches)
    shares = job.step(plan).weights
    steps = list(reference_steps(job, rows, shares, num_steps))
    nudged = reference_steps(job, rows, shares, num_steps if job.training else 0, nudge=1)
    drift = [drift_between(steps[number], step) for number, step in enumerate(nudged)]
    return Expected(steps, tuple(drift or [0.0] * num_steps))


def judge(job: Job, plan: Plan, on: str = "lockstep", num_steps: int = 3, reference: Expected | None = None) -> Verdict:
    """Run a plan and hold every step against the reference."""
    if not job.training:
        num_steps = 1
    compiled = job.compiled(plan)
    known = reference or expected(job, plan, num_steps)
    engines = runner(on, compiled.programs(), job.state(), job.optimizer)
    differences: list[Difference] = []
    try:
        sent: list[int] = []
        for number in range(num_steps):
            step = job.step(plan, number)
            whole = engines.step(step)
            sent = sent or whole.bytes_sent
            limit = STRICT if number == 0 else max(STRICT, DRIFT_FACTOR * known.drift[number])
            differences += compare(job, whole, known.steps[number], step.weights, number, limit)
            del whole  # else two steps' tensors are held at once
    finally:
        engines.close()
    placement = next(iter(compiled.flows.values())).placement
    return Verdict(
        plan, on, tuple(differences), known.drift, shares(placement), tuple(sent), against=against(compiled.graph, plan)
    )


def against(graph: Graph, plan: Plan) -> str:
    """What a plan is held against: one engine, with a word on micro-batches where they change the result."""
    if plan.micro_batches == 1 or all(op.target != "trine.batch_norm" for op in graph.operators):
        return ONE_ENGINE
    streams = f"streams the same {plan.micro_batches} micro-batches"
    return f"{ONE_ENGINE} that {streams} (batch norm takes its statistics from each)"


def compare(
    job: Job, whole: Whole, want: Reference, weights: Sequence[float], number: int, limit: float,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> list[Difference]:  # fmt: skip
    """Differences of one step, one for each kind of value.  ``names``: tensor → names in the module, by default those
    of the graph."""
    names = names or job.captured(next(iter(job.captures))).parameters
    result = [_worst(number, "outputs", outputs_apart(want, whole.results), limit)]
    if job.training:
        loss = whole.loss(weights)
        value = abs(float(loss) - want.loss) / max(abs(want.loss), 1e-30) if loss is not None else float("nan")
        result.append(Difference(number, "loss", value, "loss", limit))
        result.append(_gradients(whole.gradients, want.gradients, names, number, limit))
    got = dict(chain(job.module.named_parameters(), job.module.named_buffers()))  # what nobody reads stays as it is
    got |= by_name(whole.state, names)
    for kind, values in (("buffers", want.buffers), ("weights", want.weights if job.training else {})):
        if kind == "weights" and not values:
            continue
        total = float(sum(v.double().norm() ** 2 for v in values.values() if v.is_floating_point())) ** 0.5
        found = [(name, relative(got[name].detach(), value, total)) for name, value in values.items()]
        result.append(_worst(number, kind, found, limit))
    return result


def _gradients(
    got: Mapping[str, Tensor], want: Mapping[str, Tensor], names: Mapping[str, tuple[str, ...]], number: int,
    limit: float,
) -> Difference:  # fmt: skip
    """Each gradient by name, relative to the norm of all; one that is missing on either side counts as zero."""
    total = float(torch.stack([g.double().norm() for g in want.values()]).norm()) if want else 1.0
    mine = by_name(got, names)
    found = []
    for name in sorted(set(want) | set(mine)):
        a, b = mine.get(name), want.get(name)
        if b is None and any(name in own and not set(own).isdisjoint(want) for own in names.values()):
            continue  # another name of a tied weight
        if a is None or b is None:
            value = float((a if a is not None else b).double().norm())  # type: ignore[union-attr]
        else:
            value = float(apart(a, b)) if a.shape == b.shape else float("inf")
        found.append((name, value / max(total, 1e-30)))
    return _worst(number, "gradients", found, limit)


def _worst(number: int, kind: str, found: Sequence[tuple[str, float]], limit: float) -> Difference:
    if not found:
        return Difference(number, kind, 0.0, "none", limit)
    where, value = max(found, key=lambda pair: pair[1] if pair[1] == pair[1] else float("inf"))
    return Difference(number, kind, value, where, limit)


def drift_between(a: Reference, b: Reference) -> float:
    """How far two runs of one engine are apart, by gradients."""
    total = torch.stack([g.double().norm() for g in a.gradients.values()]).norm()
    far = torch.stack([apart(g, b.gradients[n]) for n, g in a.gradients.items()]).norm()
    return float(far / total.clamp(min=1e-30))
