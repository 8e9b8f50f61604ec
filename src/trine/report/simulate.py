"""`trine simulate`: the timeline of a plan on engines that one need not own."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from trine.capture.model import Loss, Model, OptimizerFactory, make_model
from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster
from trine.cost.profile import cache_directory
from trine.cost.segments import AnalyticCosts
from trine.errors import BadInput
from trine.plan.plan import Plan
from trine.planner.predict import explain
from trine.report.plan import MOST_ENGINES, CostsOf, costs_for
from trine.report.wish import enough, header, plan_by_hand, plan_from_file, refuse_later, refuse_output, wish
from trine.report.write import write_file
from trine.run.job import Job
from trine.scenario.scenario import BATCHES, Kind
from trine.simulate.simulate import simulate as run_clock
from trine.simulate.volume import bytes_sent
from trine.trace.perfetto import chrome_json
from trine.trace.trace import Trace
from trine.units import BYTES, TIME

if TYPE_CHECKING:
    from trine.cli.options import Options


def simulate(
    module: Any, plan: Plan, *, inputs: Any = None, targets: Any = None, loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None, batch_dims: dict[str, int | None] | None = None,
    cluster: str | Cluster | None = None, training: bool = True, directory: Path | None = None,
) -> Trace:  # fmt: skip
    """The predicted trace of a plan, on a cluster or on this machine's cores."""
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    job = Job(model, training)
    programs = job.compiled(plan).programs()
    return run_clock(programs, _costs(plan, cluster, directory)(len(programs)), plan.describe())


def _costs(plan: Plan, cluster: str | Cluster | None, directory: Path | None) -> CostsOf:
    if cluster is None:
        return costs_for(min(plan.num_engines, MOST_ENGINES), None, directory)[1]
    known = choose_cluster(cluster) if isinstance(cluster, str) else cluster
    if known.num_engines < plan.num_engines:
        raise BadInput(
            f"The plan has {plan.num_engines} engines, the cluster {known.name} has {known.num_engines}.",
            "A plan needs at least as many engines as it has parts.",
            f"Use a cluster of {plan.num_engines} engines, or smaller degrees.",
        )  # fmt: skip
    return lambda count: AnalyticCosts(known)


def run(options: "Options") -> int:
    """The verb."""
    refuse_later(options.plan)
    refuse_output("simulate", options, "html", "save-plan")
    if options.scenario.rate_per_s is not None or options.scenario.p99_s is not None:
        raise BadInput("--rate or --p99 was given.", "simulate runs one step.", "Leave it out.")
    kinds: tuple[Kind, ...] = options.scenario.scenario or ("training",)  # type: ignore[assignment]
    if len(kinds) > 1:
        raise BadInput(f"--scenario {','.join(kinds)} was given.", "A step is of one scenario.", "Give one of them.")
    asked = wish(options, BATCHES[kinds[0]])
    job = Job(asked.model, kinds[0] == "training")
    if asked.plan is not None:
        plan = plan_from_file(asked.plan, job, str(options.plan.file))
    else:
        plan = plan_by_hand(options.plan, job)
    if options.engines.engines is not None:
        enough(plan, options.engines.engines)
    programs = job.compiled(plan).programs()
    costs = _costs(plan, options.engines.cluster, cache_directory(os.environ, Path.home()))(len(programs))
    trace = run_clock(programs, costs, plan.describe())
    console = Console(highlight=False)
    console.print(header(asked.model, options.model), soft_wrap=True)
    calibrated = "every operator was timed" if trace.calibrated else "not calibrated"
    console.print(f"{plan.describe()}: {TIME.format(trace.makespan_s)} a step ({calibrated})", soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("engine", "stage", "busy", "communication", "waiting", "sent"):
        table.add_column(name, justify="right")
    rows = zip(programs, trace.utilisation(), trace.communication_s(), trace.waiting_s(), strict=True)
    for program, busy, talking_s, waiting_s in list(rows)[:32]:
        table.add_row(
            str(program.rank), str(program.stage), f"{busy:.0%}", TIME.format(talking_s), TIME.format(waiting_s),
            BYTES.format(bytes_sent(program)),
        )  # fmt: skip
    console.print(table)
    sent = max(bytes_sent(program) for program in programs)
    console.print(explain(plan, programs, trace, sent, None), soft_wrap=True)
    if options.output.trace is not None:
        write_file(options.output.trace, chrome_json(trace))
    if options.output.json is not None:
        write_file(options.output.json, msgspec.json.format(trace.to_json()) + b"\n")
    return 0
