"""`trine plan`: the best of the combinations that are searched on a few engines, by prediction, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from trine.capture.model import Loss, Model, OptimizerFactory, make_model, resized
from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster
from trine.cost.profile import Profile, load_profile
from trine.cost.segments import AnalyticCosts, Costs, MeasuredCosts
from trine.errors import BadInput
from trine.measure.machine import machine_cluster, read_machine
from trine.measure.operators import optimizer_name
from trine.plan.build import build
from trine.plan.file import write_plan
from trine.plan.plan import Plan
from trine.planner.candidates import candidates, with_room
from trine.planner.halos import halo_choices
from trine.planner.predict import Prediction, predict
from trine.report.fits import nothing_fits
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

MOST_ENGINES = 4
CostsOf = Callable[[int, str], Costs]


@dataclass(frozen=True)
class Basis:
    """What predictions rest on: engines; what work costs, by how many of them are at work and by the optimizer's name
    (see ``measure.operators.optimizer_name``); and where that is from."""

    cluster: Cluster
    costs_of: CostsOf
    origin: str


@dataclass(frozen=True)
class Planned:
    """The answer: plans with their predictions, the best first; what each impossible combination died of; where the
    costs come from."""

    ranked: tuple[tuple[Plan, Prediction], ...]
    died: dict[str, str]
    costs: str

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
    basis = searchable(basis, asked=engines is not None or cluster is not None)
    return search(Job(resized(model, asked.batch), asked.training), asked, basis)


def search(job: Job, scenario: Scenario, basis: Basis) -> Planned:
    """The ranking of everything that the search looks at."""
    plans, died = candidates(job.graph_for, scenario, basis.cluster.num_engines)
    plans = {"one engine": build(job.graph(), batch=job.batch), **plans}
    found = {plan.key: told(job, plan, basis) for plan in plans.values()}
    more = better_halos(job, plans, found)
    return rank(job, plans | more, basis, died, {name: prediction for name, (prediction, _) in found.items()})


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


def searchable(basis: Basis, *, asked: bool) -> Basis:
    """The same, if the search covers so many engines.  More are an error if they were ``asked`` for, else the first
    are taken."""
    if basis.cluster.num_engines > MOST_ENGINES:
        if not asked:
            origin = f"{basis.origin}; the search covers {MOST_ENGINES} of {basis.cluster.num_engines} cores"
            return replace(basis, cluster=basis.cluster.first(MOST_ENGINES), origin=origin)
        raise BadInput(
            f"A plan for {basis.cluster.num_engines} engines was asked for.", f"The search covers {MOST_ENGINES}.",
            f"Ask for at most {MOST_ENGINES} (--engines, --cluster), or give the plan by hand (--data, --stages, "
            "--tensor).",
        )  # fmt: skip
    return basis


def costs_for(engines: int | None, cluster: str | Cluster | None, directory: Path | None) -> Basis:
    """The first ``engines`` (None: all) of a cluster, or of this machine.

    Engines that are not at work use no bandwidth: those at work are the first ones.
    """
    if cluster is not None:
        known = choose_cluster(cluster) if isinstance(cluster, str) else cluster
        known = known.first(engines or known.num_engines)
        return Basis(
            known, lambda n, name: AnalyticCosts(known.first(n)), f"data sheets of {known.name}, not calibrated"
        )
    machine = read_machine()
    profile: Profile | None = load_profile(directory, machine.fingerprint) if directory is not None else None
    here = machine_cluster(machine, num_engines=engines)
    if profile is None:
        origin = "estimates of this machine (`trine engines --calibrate` measures it)"
        return Basis(here, lambda n, name: AnalyticCosts(here.first(n)), origin)
    measured = profile
    return Basis(here, lambda n, name: MeasuredCosts(measured, n, "threads", name), f"measured {profile.date}")


def run(options: "Options") -> int:
    """The verb.  0: there is a plan; 1, by NothingFits: there is none."""
    refuse_alone(options.plan)
    kinds: tuple[Kind, ...] = options.scenario.scenario or ("training",)  # type: ignore[assignment]
    if len(kinds) > 1:
        raise BadInput(f"--scenario {','.join(kinds)} was given.", "A plan is for one scenario.", "Give one of them.")
    by_hand = options.plan.file is not None or is_by_hand(options.plan)
    basis = costs_for(options.engines.engines, options.engines.cluster, options.cache)
    if not by_hand:
        asked_for = options.engines.engines is not None or options.engines.cluster is not None
        basis = searchable(basis, asked=asked_for)
    asked = wish(options, BATCHES[kinds[0]])
    scenario = Scenario(kinds[0], asked.model.inputs.batch)
    job = Job(asked.model, scenario.training)
    if by_hand:
        mine = (
            plan_from_file(asked.plan, job, str(options.plan.file)) if asked.plan else plan_by_hand(options.plan, job)
        )
        result = rank(job, {mine.key: enough(mine, basis.cluster.num_engines)}, basis, {})
    else:
        result = search(job, scenario, basis)
    show(Console(highlight=False), header(asked.model, options.model), result, scenario, options.output)
    if options.output.save_plan is not None:
        best = msgspec.structs.replace(result.best, model_options=Kept.write(options.model))
        write_plan(best, options.output.save_plan)
    if options.output.json is not None:
        rows = [{"plan": msgspec.to_builtins(p), "predicted": msgspec.to_builtins(f)} for p, f in result.ranked]
        text = msgspec.json.encode({"costs": result.costs, "plans": rows, "impossible": result.died})
        write_file(options.output.json, msgspec.json.format(text) + b"\n")
    return 0


def show(console: Console, title: str, result: Planned, scenario: Scenario, output: "OutputOptions") -> None:
    """The best plan (``quiet``: only that), the runners-up, and with ``verbose`` what ruled out the rest."""
    console.quiet = output.quiet
    console.print(title, soft_wrap=True)
    console.print(f"Costs: {result.costs}.", soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("plan", "time", scenario.unit, "memory", "sent"):
        table.add_column(name, justify="left" if name == "plan" else "right")
    for each, found in result.ranked if output.verbose else result.ranked[:6]:
        table.add_row(
            each.describe(), TIME.format(found.time_s), f"{scenario.throughput_per_s(found.time_s):.3g}",
            BYTES.format(found.memory_bytes), BYTES.format(found.bytes_sent),
        )  # fmt: skip
    console.print(table)
    best, found = result.ranked[0]
    console.quiet = False
    console.print(f"=> {best.describe()}: {found.reason}", soft_wrap=True)
    if output.verbose:
        for name, why in result.died.items():
            console.print(f"  not possible: {name}: {why}", soft_wrap=True)
