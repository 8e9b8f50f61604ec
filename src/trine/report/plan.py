"""`trine plan`: the best of all legal combinations on a few engines, by prediction, and why."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from trine.capture.model import Loss, Model, OptimizerFactory, make_model
from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster
from trine.cost.profile import Profile, cache_directory, load_profile
from trine.cost.segments import AnalyticCosts, Costs, MeasuredCosts
from trine.errors import BadInput
from trine.measure.machine import machine_cluster, read_machine
from trine.measure.operators import optimizer_name
from trine.plan.build import build
from trine.plan.file import write_plan
from trine.plan.plan import Plan
from trine.planner.candidates import candidates
from trine.planner.predict import Prediction, predict
from trine.report.wish import (
    Kept,
    enough,
    header,
    is_by_hand,
    plan_by_hand,
    plan_from_file,
    refuse_later,
    refuse_output,
    resized,
    wish,
)
from trine.report.write import write_file
from trine.run.job import Job
from trine.run.judge import SGD
from trine.scenario.scenario import BATCHES, Kind, Scenario
from trine.units import BYTES, TIME

if TYPE_CHECKING:
    from trine.cli.options import Options

MOST_ENGINES = 4
CostsOf = Callable[[int], Costs]


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
    """Rank every legal combination of data, model and tensor parallelism, one engine among them.

    ``cluster``: engines that need not be here; else ``engines`` cores of this machine, with what ``directory`` holds of
    its measured rates.
    """
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    asked = Scenario(scenario, batch or model.inputs.batch)
    job = Job(resized(model, asked.batch), asked.training)
    count, costs_of, origin = costs_for(engines, cluster, directory)
    plans, died = candidates(job.graph_for, asked, count)
    return rank(job, [build(job.graph(), batch=asked.batch), *plans], costs_of, died, origin)


def rank(job: Job, plans: list[Plan], costs_of: CostsOf, died: dict[str, str], origin: str) -> Planned:
    """Predict plans and sort them by time; equal times by name, so that the answer is the same each time."""
    found = []
    for each in plans:
        programs = job.compiled(each).programs()
        found.append((each, predict(each, programs, costs_of(len(programs)))[0]))
    found.sort(key=lambda pair: (pair[1].time_s, pair[0].describe()))
    return Planned(tuple(found), died, origin)


def costs_for(engines: int | None, cluster: str | Cluster | None, directory: Path | None) -> tuple[int, CostsOf, str]:
    """(number of engines, costs by number of engines at work, where they come from)."""
    if cluster is not None:
        known = choose_cluster(cluster) if isinstance(cluster, str) else cluster
        if known.num_engines > MOST_ENGINES:
            raise BadInput(
                f"The cluster {known.name} has {known.num_engines} engines.",
                f"The search covers {MOST_ENGINES} engines.",
                f"Choose at most {MOST_ENGINES}, or give the plan by hand.",
            )  # fmt: skip
        return known.num_engines, lambda n: AnalyticCosts(known), f"data sheets of {known.name}, not calibrated"
    machine = read_machine()
    count = engines or machine.num_cores
    if count > MOST_ENGINES:
        raise BadInput(
            f"{count} engines were asked for.", f"The search covers {MOST_ENGINES}.", f"Give --engines {MOST_ENGINES}."
        )
    profile: Profile | None = load_profile(directory, machine.fingerprint) if directory is not None else None
    if profile is None:
        here = machine_cluster(machine, num_engines=count)
        return (
            count,
            lambda n: AnalyticCosts(here),
            "estimates of this machine (`trine engines --calibrate` measures it)",
        )
    measured = profile
    return count, lambda n: MeasuredCosts(measured, n, "threads", optimizer_name(SGD)), f"measured {profile.date}"


def run(options: "Options") -> int:
    """The verb.  0: there is a plan."""
    refuse_later(options.plan)
    refuse_output("plan", options, "html", "trace")
    if options.how.on:
        raise BadInput("--on was given.", "plan runs nothing.", "`trine verify MODEL --on ...` does.")
    if (
        options.scenario.rate_per_s is not None
        or options.scenario.p99_s is not None
        or options.how.budget_s is not None
    ):
        raise BadInput("--rate, --p99 or --budget was given.", "plan cannot honour it yet.", "Leave it out.")
    kinds: tuple[Kind, ...] = options.scenario.scenario or ("training",)  # type: ignore[assignment]
    if len(kinds) > 1:
        raise BadInput(f"--scenario {','.join(kinds)} was given.", "A plan is for one scenario.", "Give one of them.")
    asked = wish(options, BATCHES[kinds[0]])
    scenario = Scenario(kinds[0], asked.model.inputs.batch)
    job = Job(asked.model, scenario.training)
    directory = cache_directory(os.environ, Path.home())
    if asked.plan is not None or is_by_hand(options.plan):
        mine = (
            plan_from_file(asked.plan, job, str(options.plan.file)) if asked.plan else plan_by_hand(options.plan, job)
        )
        if options.engines.engines is not None:
            enough(mine, options.engines.engines)
        _, costs_of, origin = costs_for(min(mine.num_engines, MOST_ENGINES), options.engines.cluster, directory)
        result = rank(job, [mine], costs_of, {}, origin)
    else:
        count, costs_of, origin = costs_for(options.engines.engines, options.engines.cluster, directory)
        plans, died = candidates(job.graph_for, scenario, count)
        result = rank(job, [build(job.graph(), batch=job.batch), *plans], costs_of, died, origin)
    show(Console(highlight=False), header(asked.model, options.model), result, scenario, options.output.verbose)
    if options.plan.save is not None:
        write_plan(msgspec.structs.replace(result.best, model_options=Kept.write(options.model)), options.plan.save)
    if options.output.json is not None:
        rows = [{"plan": msgspec.to_builtins(p), "predicted": msgspec.to_builtins(f)} for p, f in result.ranked]
        text = msgspec.json.encode({"costs": result.costs, "plans": rows, "impossible": result.died})
        write_file(options.output.json, msgspec.json.format(text) + b"\n")
    return 0


def show(console: Console, title: str, result: Planned, scenario: Scenario, verbose: bool) -> None:
    """The best plan, the runners-up, and with ``verbose`` what ruled out the rest."""
    console.print(title, soft_wrap=True)
    console.print(f"Costs: {result.costs}.", soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("plan", "time", scenario.unit, "memory", "sent"):
        table.add_column(name, justify="left" if name == "plan" else "right")
    for each, found in result.ranked if verbose else result.ranked[:6]:
        table.add_row(
            each.describe(), TIME.format(found.time_s), f"{scenario.throughput_per_s(found.time_s):.3g}",
            BYTES.format(found.memory_bytes), BYTES.format(found.bytes_sent),
        )  # fmt: skip
    console.print(table)
    best, found = result.ranked[0]
    console.print(f"=> {best.describe()}: {found.reason}", soft_wrap=True)
    if verbose:
        for name, why in result.died.items():
            console.print(f"  not possible: {name}: {why}", soft_wrap=True)
