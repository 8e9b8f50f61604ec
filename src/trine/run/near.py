"""Near enough in float32: a plan's first step is no farther from one engine in float64 than one engine's own is.

An activation that rounding carries over the kink of a ReLU changes gradients by far more than rounding does, in some
runs and not in others.  So where a plan is too far, one engine runs again with its weights moved by one unit in the
last place, and the farthest of its runs counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from trine.plan.plan import Plan
from trine.program.compile import batches
from trine.run.collect import Whole
from trine.run.distance import Near, by_name, distance
from trine.run.job import Job, Reference, reference_steps
from trine.run.runner import runner

NUM_NUDGED = 6


@dataclass
class OneEngine:
    """One engine's first step in float32 over some rows at a time, held against ``want``, its step in float64.

    Steps are run when they are needed, one at a time, and nothing but their distances is kept.
    """

    job: Job
    rows: tuple[tuple[int, int], ...]
    shares: tuple[float, ...]
    want: Reference
    known: list[float] = field(default_factory=list)

    def distances(self, num_runs: int) -> tuple[float, ...]:
        """Of the run as it is, then of those with moved weights."""
        while len(self.known) < num_runs:
            self.known.append(self.run(nudge=len(self.known)))
        return tuple(self.known[:num_runs])

    def run(self, nudge: int = 0) -> float:
        """How far a run of the plain module is, with the intra-op threads that torch has now."""
        run = next(reference_steps(self.job, self.rows, self.shares, 1, nudge=nudge))
        outputs = {(str(i), m): leaf for m, leaves in enumerate(run.outputs) for i, leaf in leaves.items()}
        return distance(self.want, outputs, run.gradients)

    def near(self, whole: Whole, names: Mapping[str, tuple[str, ...]] | None = None) -> Near:
        """A plan's first step beside this; with no more runs than it takes.  ``names``: as ``compare`` takes them."""
        names = names or self.job.captured(next(iter(self.job.captures))).parameters
        return self.judged(distance(self.want, whole.results, by_name(whole.gradients, names)))

    def judged(self, far: float) -> Near:
        """A distance from ``want`` beside one engine's own."""
        found = Near(far, self.distances(1))
        while not found.enough and len(found.one_engine) <= NUM_NUDGED:
            found = Near(far, self.distances(len(found.one_engine) + 1))
        return found


def one_engine(job: Job, plan: Plan, want: Reference) -> OneEngine:
    """One engine in the model's own type, for the way in which a plan streams the batch."""
    return OneEngine(job, batches(job.batch, plan.micro_batches), job.step(plan).weights, want)


def judge_float32(job: Job, plan: Plan, on: str, one: OneEngine) -> Near:
    """Run the first step of a plan; no optimizer is needed for it."""
    engines = runner(on, job.compiled(plan).programs(), job.state(), None)
    try:
        whole = engines.step(job.step(plan))
    finally:
        engines.close()
    return one.near(whole)


def is_float32(job: Job) -> bool:
    """Whether all floating parameters and buffers of the model itself are of this type."""
    module = job.model.module
    tensors = (*module.parameters(), *module.buffers())
    return all(t.dtype == torch.float32 for t in tensors if t.is_floating_point())
