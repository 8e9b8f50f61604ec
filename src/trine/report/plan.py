"""`trine plan`: the best plan by prediction, and why.

On a few engines every combination is simulated; on more, all are estimated and the best few are simulated, or told by
their estimates where their Programs would be too many.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from trine.capture.model import Loss, Model, OptimizerFactory, make_model, resized
from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster
from trine.cluster.what_if import Change, changed
from trine.cost.analytic import Roofline, from_profile
from trine.cost.profile import Profile, load_profile
from trine.cost.segments import AnalyticCosts, Costs, MeasuredCosts, rated
from trine.errors import BadInput, NothingFits
from trine.measure.machine import machine_cluster, read_machine
from trine.measure.operators import optimizer_name
from trine.plan.build import build
from trine.plan.file import write_plan
from trine.plan.plan import Plan
from trine.planner.candidates import candidates, with_room
from trine.planner.fleet import Fleet, RooflineOf
from trine.planner.halos import halo_choices
from trine.planner.placement import Crossover
from trine.planner.predict import Prediction, predict
from trine.report.fits import nothing_fits
from trine.report.wide import Wide, finalists
from trine.report.wish import (
    Kept,
    enough,
    header,
    is_by_hand,
    plan_by_hand,
    plan_from_file,
    refuse_alone,
    wish,
)
from trine.report.write import write_file
from trine.run.job import Job
from trine.scenario.scenario import BATCHES, Kind, Scenario
from trine.trace.trace import Trace
from trine.units import BYTES, TIME

if TYPE_CHECKING:
    from trine.cli.options import Options, OutputOptions

MOST_ENGINES = 4  # on which every combination is simulated
MOST_CROSSED = 16  # for which another ratio of links is looked at
CostsOf = Callable[[int, str], Costs]


@dataclass(frozen=True)
class Basis:
    """What predictions rest on: engines; what work costs, by how many of them are at work and by the optimizer's name
    (see ``measure.operators.optimizer_name``); the roofline of an engine among all of them; and where that is from."""

    cluster: Cluster
    costs_of: CostsOf
    roofline: RooflineOf
    origin: str


@dataclass(frozen=True)
class Planned:
    """The answer: plans with their predictions, the best first; what each impossible combination died of; where the
    costs come from; how the plans were found; where the best one changes; what is best with something of the cluster
    changed, by what was, None where nothing fits then."""

    ranked: tuple[tuple[Plan, Prediction], ...]
    died: dict[str, str]
    costs: str
    how: str = ""
    crossovers: tuple[Crossover, ...] = ()
    what_if: dict[str, tuple[Plan, Prediction] | None] = field(default_factory=dict)

    @property
    def best(self) -> Plan:
        return self.ranked[0][0]


def plan(
    module: Any, *, inputs: Any = None, targets: Any = None, loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None, batch_dims: dict[str, int | None] | None = None,
    engines: int | None = None, cluster: str | Cluster | None = None, scenario: Kind = "training",
    batch: int | None = None, directory: Path | None = None,
) -> Planned:  # fmt: skip
    """Rank combinations of data, model and tensor parallelism (see ``planner/candidates.py``), one engine among them.

    ``cluster``: engines that need not be here; else ``engines`` cores of this machine, with what ``directory`` holds of
    its measured rates.  Raises NothingFits if the engines have the memory for none.
    """
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    asked = Scenario(scenario, batch or model.inputs.batch)
    basis = costs_for(engines, cluster, directory)
    return search(Job(resized(model, asked.batch), asked.training), asked, basis)


def search(job: Job, scenario: Scenario, basis: Basis, budget_s: float | None = None) -> Planned:
    """The ranking of everything that the search looks at.  Raises NothingFits."""
    if basis.cluster.num_engines > MOST_ENGINES:
        return wide_search(job, basis, budget_s)
    plans, died = candidates(job.graph_for, scenario, basis.cluster.num_engines)
    plans = {"one engine": build(job.graph(), batch=job.batch), **plans}
    plans |= refined(job, basis, plans)
    found = {plan.key: told(job, plan, basis) for plan in plans.values()}
    more = better_halos(job, plans, found)
    result = rank(job, plans | more, basis, died, {name: prediction for name, (prediction, _) in found.items()})
    return replace(result, how=f"all {len(result.ranked) + len(died)} combinations on up to {MOST_ENGINES} engines")


def refined(job: Job, basis: Basis, plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The same plans with stages that should take equal time, and on unequal engines with shares by their speed."""
    wide = Wide(job, Fleet(basis.cluster, basis.roofline, job.optimizer_states))
    result = {}
    for plan in plans.values():
        if plan.num_engines > 1 and (plan.num_stages > 1 or wide.fleet.unequal):
            other = wide.refined(plan)
            if other.key != plan.key:
                result[other.key] = other
    return result


def wide_search(job: Job, basis: Basis, budget_s: float | None = None) -> Planned:
    """The best by estimates, simulated where their Programs are not too many."""
    wide = Wide(job, Fleet(basis.cluster, basis.roofline, job.optimizer_states))
    found = wide.search(budget_s)
    chosen = list(finalists(found))
    how = f"{found.num_estimated} combinations estimated"
    if found.left:
        how += f"; the time was over before {len(found.left)} ways to cut tensors"
    if not wide.small(chosen):
        plans = [(candidate, wide.plan(candidate, exact=False)) for candidate in chosen]
        ranked = tuple((plan, wide.prediction(candidate, plan)) for candidate, plan in plans)
        return Planned(ranked, found.died, basis.origin, how)
    died = dict(found.died)
    try:
        result = rank(job, wide.exact_plans(chosen, died), basis, died)
    except NothingFits:  # by the Programs' own memory, which estimates may miss: then all that is remembered
        result = rank(job, wide.exact_plans(found.candidates, died), basis, died)
    return replace(result, how=f"{how}, the best {len(result.ranked)} simulated")


def with_crossovers(job: Job, basis: Basis, result: Planned) -> Planned:
    """The answer with where another ratio of links would put other axes outside; as it is on too many engines."""
    if not MOST_ENGINES < basis.cluster.num_engines <= MOST_CROSSED:
        return result
    wide = Wide(job, Fleet(basis.cluster, basis.roofline, job.optimizer_states))
    return replace(result, crossovers=tuple(wide.crossovers()))


def with_changes(job: Job, basis: Basis, changes: Sequence[Change], result: Planned, scenario: Scenario) -> Planned:
    """The answer with what it would be if something of the cluster were so many times as fast or large."""
    found: dict[str, tuple[Plan, Prediction] | None] = {}
    for change in changes:
        other = on_sheets(changed(basis.cluster, change.what, change.factor), basis.origin)
        try:
            found[str(change)] = search(job, scenario, other).ranked[0]
        except NothingFits:
            found[str(change)] = None
    return replace(result, what_if=found)


def better_halos(job: Job, plans: Mapping[str, Plan], found: Mapping[str, tuple[Prediction, Trace]]) -> dict[str, Plan]:
    """Of the two fastest plans with halos, those that overlap or recompute them."""
    tiled = sorted((plan for plan in plans.values() if plan.cuts_space), key=lambda plan: found[plan.key][0].time_s)
    result = {}
    for plan in tiled[:2]:
        graph, trace = job.graph_for(plan.micro_batches), found[plan.key][1]
        for other in halo_choices(plan, graph, job.compiled(plan).programs(), trace):
            result[other.key] = other
    return result


def told(job: Job, plan: Plan, basis: Basis) -> tuple[Prediction, Trace]:
    """The prediction of a plan."""
    programs = job.compiled(plan).programs()
    costs = basis.costs_of(len(programs), optimizer_name(job.model.optimizer))
    return predict(plan, programs, costs, None, job.optimizer_states)


def rank(
    job: Job,
    plans: Mapping[str, Plan],
    basis: Basis,
    died: dict[str, str],
    known: Mapping[str, Prediction] | None = None,
) -> Planned:
    """Predict plans and sort those that fit by time; equal times by name, so that the answer is the same each time.
    ``known``: predictions by ``key`` that are there already."""
    found = dict(known or {})
    found |= {each.key: told(job, each, basis)[0] for each in plans.values() if each.key not in found}
    kept = [(each, found[each.key]) for each in with_room(plans, found, basis.cluster, died)]
    if not kept:
        tried = [(each, found[each.key].needs_bytes) for each in plans.values()]
        raise nothing_fits(job, tried, basis.cluster)
    kept.sort(key=lambda pair: (pair[1].time_s, pair[0].key))
    return Planned(tuple(kept), died, basis.origin)


def costs_for(engines: int | None, cluster: str | Cluster | None, directory: Path | None) -> Basis:
    """The first ``engines`` (None: all) of a cluster, or of this machine.

    Engines that are not at work use no bandwidth: those at work are the first ones.
    """
    if cluster is not None:
        known = choose_cluster(cluster) if isinstance(cluster, str) else cluster
        known = known.first(engines or known.num_engines)
        return on_sheets(known, f"data sheets of {known.name}, not calibrated")
    machine = read_machine()
    profile: Profile | None = load_profile(directory, machine.fingerprint) if directory is not None else None
    here = machine_cluster(machine, num_engines=engines)
    if profile is None:
        return on_sheets(here, "estimates of this machine (`trine engines --calibrate` measures it)")
    measured, count = profile, here.num_engines

    def roofline(engine: int, kind: str, dtype: str, backward: bool) -> Roofline:
        dtype = rated(dtype, measured.rates[0].matmul_flops_per_s, "float32")
        return from_profile(measured, kind, dtype, count, backward=backward)

    return Basis(
        here, lambda n, name: MeasuredCosts(measured, n, "threads", name), roofline, f"measured {profile.date}"
    )


def on_sheets(cluster: Cluster, origin: str) -> Basis:
    """What the data sheets of a cluster say."""
    whole = AnalyticCosts(cluster)
    return Basis(
        cluster, lambda n, name: AnalyticCosts(cluster.first(n)),
        lambda engine, kind, dtype, backward: whole.roofline(engine, dtype), origin,
    )  # fmt: skip


def run(options: "Options") -> int:
    """The verb.  0: there is a plan; 1, by NothingFits: there is none."""
    refuse_alone(options.plan)
    kinds: tuple[Kind, ...] = options.scenario.scenario or ("training",)  # type: ignore[assignment]
    if len(kinds) > 1:
        raise BadInput(f"--scenario {','.join(kinds)} was given.", "A plan is for one scenario.", "Give one of them.")
    by_hand = options.plan.file is not None or is_by_hand(options.plan)
    basis = costs_for(options.engines.engines, options.engines.cluster, options.cache)
    if options.search.what_if and (by_hand or options.engines.cluster is None):
        raise BadInput(
            "--what-if was given for a plan by hand, or for this machine.",
            "It changes the data sheets of a cluster, on which the best plan is searched.",
            "Name the engines by --cluster, and leave the plan's degrees out.",
        )  # fmt: skip
    away = options.engines.cluster is not None and options.model.load is None  # its weights may have no room here
    asked = wish(options, BATCHES[kinds[0]], meta=away)
    scenario = Scenario(kinds[0], asked.model.inputs.batch)
    job = Job(asked.model, scenario.training)
    if by_hand:
        mine = (
            plan_from_file(asked.plan, job, str(options.plan.file)) if asked.plan else plan_by_hand(options.plan, job)
        )
        result = rank(job, {mine.key: enough(mine, basis.cluster.num_engines)}, basis, {})
    else:
        result = search(job, scenario, basis, options.how.budget_s)
        result = with_changes(job, basis, options.search.what_if, result, scenario)
        result = result if options.output.quiet else with_crossovers(job, basis, result)
    show(Console(highlight=False), header(asked.model, options.model), result, scenario, options.output)
    if options.output.save_plan is not None:
        best = msgspec.structs.replace(result.best, model_options=Kept.write(options.model))
        write_plan(best, options.output.save_plan)
    if options.output.json is not None:
        rows = [{"plan": msgspec.to_builtins(p), "predicted": msgspec.to_builtins(f)} for p, f in result.ranked]
        changes = {
            what: {"plan": msgspec.to_builtins(best[0]), "predicted": msgspec.to_builtins(best[1])} if best else None
            for what, best in result.what_if.items()
        }
        text = msgspec.json.encode(
            {"costs": result.costs, "how": result.how, "plans": rows, "impossible": result.died, "what_if": changes}
        )
        write_file(options.output.json, msgspec.json.format(text) + b"\n")
    return 0


def show(console: Console, title: str, result: Planned, scenario: Scenario, output: "OutputOptions") -> None:
    """The best plan (``quiet``: only that), the runners-up, and with ``verbose`` what ruled out the rest."""
    console.quiet = output.quiet
    console.print(title, soft_wrap=True)
    console.print(f"Costs: {result.costs}.", soft_wrap=True)
    if result.how:
        console.print(f"Searched: {result.how}.", soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("plan", "time", scenario.unit, "memory", "sent"):
        table.add_column(name, justify="left" if name == "plan" else "right")
    for each, found in result.ranked if output.verbose else result.ranked[:6]:
        table.add_row(
            each.describe(), TIME.format(found.time_s), f"{scenario.throughput_per_s(found.time_s):.3g}",
            BYTES.format(found.memory_bytes), BYTES.format(found.bytes_sent),
        )  # fmt: skip
    console.print(table)
    for crossover in result.crossovers:
        console.print(
            f"Where the outer link is more than {crossover.ratio:.1f} × slower than the one inside: "
            f"{crossover.above.describe()}; where it is less: {crossover.below.describe()}.", soft_wrap=True,
        )  # fmt: skip
    best, found = result.ranked[0]
    for what, answer in result.what_if.items():
        if answer is None:
            console.print(f"With {what}: nothing fits in the memory of the engines.", soft_wrap=True)
            continue
        other, predicted = answer
        times = found.time_s / predicted.time_s
        same = "the same plan" if other.describe() == best.describe() else other.describe()
        console.print(
            f"With {what}: {TIME.format(predicted.time_s)}, {times:.2f} × as fast, by {same}.", soft_wrap=True
        )
    console.quiet = False
    console.print(f"=> {best.describe()}: {found.reason}", soft_wrap=True)
    if output.verbose:
        for name, why in result.died.items():
            console.print(f"  not possible: {name}: {why}", soft_wrap=True)
