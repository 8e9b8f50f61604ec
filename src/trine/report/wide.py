"""The search on many engines: by estimates, and the best few simulated where their Programs are not too many."""

from collections.abc import Iterator, Sequence
from copy import copy

from msgspec.structs import replace

from trine.cluster.cluster import Cluster
from trine.cluster.room import shortage
from trine.cluster.what_if import outer_link
from trine.errors import NothingFits, TrineError
from trine.plan.build import build, check, cut_sizes
from trine.plan.plan import FEATURES, Axis, Plan
from trine.planner.estimate import Estimate, Estimator
from trine.planner.fleet import Fleet, RooflineOf
from trine.planner.outline import Outline, between, outline
from trine.planner.placement import Crossover, crossovers
from trine.planner.predict import Prediction
from trine.planner.refine import with_shares, with_stages
from trine.planner.search import Candidate, Found, search
from trine.program.compile import batches
from trine.run.job import Job
from trine.units import BYTES

PARTS = (8, 6, 4, 3)  # the first that a dimension allows is read from a flow, beside 2
FINALISTS = 3
MOST_WORK = 6_000  # engines x operators x micro-batches of the plans whose Programs are made


class Wide:
    """The search of one job on one fleet of engines; outlines are kept with the graph, so that another one is quick."""

    def __init__(self, job: Job, fleet: Fleet) -> None:
        self.job, self.fleet, self.graph = job, fleet, job.graph()
        self.base = build(self.graph, batch=job.batch)
        self.outlines: dict[Axis | None, Outline] = self.graph.once("outlines", dict)
        self.batch = job.batch if "batch" in cut_sizes(self.graph) else 1

    def outline(self, axis: Axis | None) -> Outline:
        """Of a way to cut tensors: read from a flow for two numbers of parts, and between these for others."""
        if axis not in self.outlines and axis is not None and axis.size not in (ends := self.ends(axis)):
            known = [self.outline(replace(axis, size=size)) for size in ends]
            found = between(known[0], known[1], axis) if len(known) == 2 else None
            if found is not None:
                self.outlines[axis] = found
        if axis not in self.outlines:
            data = (Axis("data", 2, "batch"),) if self.batch > 1 else ()
            plan = replace(self.base, axes=(*data, axis) if axis is not None else data)
            self.outlines[axis] = outline(self.job.compiled(plan))
        return self.outlines[axis]

    def ends(self, axis: Axis) -> tuple[int, ...]:
        """The numbers of parts of a dimension whose outlines are read: 2 and some more."""
        length = cut_sizes(self.graph)[axis.cut]
        more = (size for size in PARTS if size <= length and (axis.cut not in FEATURES or length % size == 0))
        return tuple(sorted({2, next(more, 2)}))

    def on(self, cluster: Cluster, roofline: RooflineOf) -> "Wide":
        """The same on other engines."""
        other = copy(self)
        other.fleet = Fleet(cluster, roofline, self.fleet.states)
        return other

    def search(self, budget_s: float | None = None) -> Found:
        """Raises NothingFits if no plan fits in the memory of the engines."""
        found = search(self.graph, self.outline, self.fleet, self.batch, budget_s)
        if not found.candidates:
            raise self.nothing_fits()
        return found

    def nothing_fits(self) -> NothingFits:
        """What is missing, and the largest half, quarter, … of the batch that fits."""
        cluster, near, batch = self.fleet.cluster, "", self.batch
        while batch > 1 and not near:
            batch //= 2
            some = search(self.graph, self.outline, self.fleet, batch).candidates
            if some:
                near = f"With --batch {batch} an engine needs at most {BYTES.format(some[0].most_bytes)}, which fits."
        every = search(self.graph, self.outline, self.fleet, self.batch, room_bytes=float("inf"))
        least = every.least
        assert least is not None
        plan = self.plan(least, exact=False)
        short = shortage(cluster, self.needs(plan, least.estimate))
        return NothingFits(tried=every.num_estimated, plan=plan.describe(), short=str(short), nearest=near)

    def crossovers(self) -> list[Crossover]:
        """At which ratio of the outermost link to the one inside it the best plan puts other axes outside, by
        estimates; none on clusters of one tier."""
        cluster = self.fleet.cluster
        if len(cluster.tiers) < 2:
            return []

        def best(ratio: float) -> Plan:
            other = self.on(outer_link(cluster, ratio), self.fleet.roofline)
            return other.plan(other.search().candidates[0], exact=False)

        return crossovers(best, cluster.tiers[-2].size)

    def small(self, candidates: Sequence[Candidate]) -> bool:
        """Whether the Programs of these are soon made."""
        work = (c.num_engines * c.outline.num_units * c.degrees.micro_batches for c in candidates)
        return sum(work) <= MOST_WORK

    def plan(self, candidate: Candidate, *, exact: bool) -> Plan:
        """A candidate as a plan.  exact: for the graph of its micro-batch, which is captured; else for the whole
        batch's, without its fingerprint where that is another one."""
        degrees, m = candidate.degrees, candidate.degrees.micro_batches
        base = self.base
        if m > 1 and exact:
            base = build(self.job.narrow_graph(m), batch=self.job.batch, micro_batches=m)
        elif m > 1:
            base = replace(base, micro_batches=m, fingerprint="", input_shapes=self.shapes(m))
        data = (Axis("data", degrees.data, "batch"),) if degrees.data > 1 else ()
        starts = tuple(candidate.outline.starts[unit] for unit in candidate.estimate.starts)
        axes = (*data, candidate.axis) if candidate.axis is not None else data
        plan = replace(base, axes=axes, stage_starts=starts, stages_at=int(degrees.stages_inside), zero=degrees.zero)
        if self.fleet.unequal:
            estimator = Estimator(candidate.outline, self.fleet)
            plan = with_shares(plan, [estimator.speed(degrees.rows, rank) for rank in range(plan.num_engines)])
        if exact:
            check(plan, self.job.narrow_graph(m), self.job.batch)
        return plan

    def refined(self, plan: Plan) -> Plan:
        """A plan of equal parts with stages by time and shares by speed."""
        axis = next((axis for axis in plan.axes if axis.cut != "batch"), None)
        estimator = Estimator(self.outline(axis), self.fleet)
        plan = with_stages(plan, estimator, self.batch)
        if not self.fleet.unequal:
            return plan
        return with_shares(plan, [estimator.speed(1, rank) for rank in range(plan.num_engines)])

    def shapes(self, micro_batches: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs of the largest micro-batch."""
        rows, result = batches(self.job.batch, micro_batches)[0][1], dict[str, tuple[int, ...]]()
        for name in self.graph.inputs:
            shape, dim = self.graph.tensors[name].shape, self.graph.batch_dims.get(name, -1)
            result[name] = (*shape[:dim], rows, *shape[dim + 1 :]) if dim >= 0 else shape
        return result

    def needs(self, plan: Plan, estimate: Estimate) -> tuple[int, ...]:
        """Estimated bytes of each engine."""
        return tuple(int(estimate.needs_bytes[plan.place(rank)[0]]) for rank in range(plan.num_engines))

    def prediction(self, candidate: Candidate, plan: Plan) -> Prediction:
        """By estimate alone."""
        estimate = candidate.estimate
        sent = Estimator(candidate.outline, self.fleet).sent_bytes(candidate.degrees, estimate.starts)
        return Prediction(
            estimate.time_s, int(max(estimate.needs_bytes)), int(sent), False, reason(candidate),
            self.needs(plan, estimate),
        )  # fmt: skip

    def exact_plans(self, candidates: Sequence[Candidate], died: dict[str, str]) -> dict[str, Plan]:
        """Plans that can be compiled, by their line; each of the others dies of something."""
        result: dict[str, Plan] = {}
        for candidate in candidates:
            try:
                plan = self.plan(candidate, exact=True)
            except TrineError as error:
                died[str(candidate.degrees)] = str(error)
                continue
            result[plan.describe()] = plan
        return result


def finalists(found: Found) -> Iterator[Candidate]:
    """The best of each way to divide the engines, in order, and one engine."""
    seen: set[tuple[Axis | None, int, int, int]] = set()
    for candidate in found.candidates:
        key = (candidate.axis, candidate.degrees.data, candidate.degrees.stages, candidate.degrees.zero)
        if key not in seen and len(seen) < FINALISTS:
            seen.add(key)
            yield candidate
    one = found.one_engine
    if one is not None and (None, 1, 1, 0) not in seen:
        yield one


def reason(candidate: Candidate) -> str:
    """Where the time of an estimate goes, in a sentence."""
    estimate, total = candidate.estimate, candidate.estimate.time_s
    if candidate.num_engines == 1:
        return "One engine does all the work; nothing is sent."
    work = total - estimate.bubble_s - estimate.talk_s - estimate.messages_s - estimate.combine_s - estimate.optimizer_s
    parts = {
        "the work of the slowest stage": work, "bubble": estimate.bubble_s, "exchange between tiles": estimate.talk_s,
        "messages between stages": estimate.messages_s, "the sum of gradients": estimate.combine_s,
        "the optimizer": estimate.optimizer_s,
    }  # fmt: skip
    shown = [f"{share / total:.0%} {name}" for name, share in parts.items() if share > 0.005 * total]
    return f"Of the time {', '.join(shown)}."
