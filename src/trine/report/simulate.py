"""`trine simulate`: the timeline of a plan on engines that one need not own."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from trine.capture.model import Loss, Model, OptimizerFactory, make_model
from trine.cluster.cluster import Cluster
from trine.cluster.room import shortage
from trine.errors import BadInput
from trine.measure.operators import optimizer_name
from trine.plan.file import Answer, given_plan
from trine.plan.plan import Plan
from trine.planner.predict import explain
from trine.program.program import Program
from trine.report.plan import costs_for
from trine.report.wish import enough, header, plan_by_hand, plan_from_file, refuse_alone, wish
from trine.report.write import write_file
from trine.run.job import Job
from trine.scenario.scenario import BATCHES, Kind
from trine.simulate.memory import memory
from trine.simulate.simulate import simulate as run_clock
from trine.simulate.volume import bytes_sent
from trine.trace.perfetto import chrome_json
from trine.trace.trace import Trace
from trine.units import BYTES, TIME

if TYPE_CHECKING:
    from trine.cli.options import Options

MOST_ROWS = 32


def simulate(
    module: Any, plan: Plan | Answer | Path | str, *, inputs: Any = None, targets: Any = None, loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None, batch_dims: dict[str, int | None] | None = None,
    cluster: str | Cluster | None = None, training: bool = True, directory: Path | None = None,
) -> Trace:  # fmt: skip
    """The predicted trace of one step of a plan, in seconds, on a cluster or on this machine's cores.

    ``training``: the step has a backward pass and an optimizer, as the plan must have been made for.  Raises
    PlanMismatch for a plan of another model or mode, BadInput for one with more engines than there are.
    """
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    job = Job(model, training)
    plan = plan_from_file(given_plan(plan), job, "given")
    programs = job.compiled(plan).programs()
    basis = costs_for(None, cluster, directory)
    enough(plan, basis.cluster.num_engines)
    return run_clock(programs, basis.costs_of(len(programs), optimizer_name(job.model.optimizer)), plan.describe())


def run(options: "Options") -> int:
    """The verb.  0: the plan fits in the memory of its engines; 1: it does not."""
    refuse_alone(options.plan)
    kinds: tuple[Kind, ...] = options.scenario.scenario or ("training",)  # type: ignore[assignment]
    if len(kinds) > 1:
        raise BadInput(f"--scenario {','.join(kinds)} was given.", "A step is of one scenario.", "Give one of them.")
    basis = costs_for(options.engines.engines, options.engines.cluster, options.cache)
    away = options.engines.cluster is not None and options.model.load is None  # its weights may have no room here
    asked = wish(options, BATCHES[kinds[0]], meta=away)
    job = Job(asked.model, kinds[0] == "training")
    plan = plan_from_file(asked.plan, job, str(options.plan.file)) if asked.plan else plan_by_hand(options.plan, job)
    programs = job.compiled(enough(plan, basis.cluster.num_engines)).programs()
    trace = run_clock(programs, basis.costs_of(len(programs), optimizer_name(job.model.optimizer)), plan.describe())
    needs_bytes = [memory(program, job.optimizer_states).total for program in programs]
    short = shortage(basis.cluster, needs_bytes)
    console = Console(highlight=False, quiet=options.output.quiet)
    console.print(header(asked.model, options.model), soft_wrap=True)
    show(console, programs, trace, needs_bytes, options.output.verbose)
    sent = max(bytes_sent(program) for program in programs)
    console.print(explain(plan, programs, trace, sent, None), soft_wrap=True)
    console.quiet = False
    calibrated = "every operator was timed" if trace.calibrated else "not calibrated"
    console.print(f"=> {plan.describe()}: {TIME.format(trace.makespan_s)} a step ({calibrated})", soft_wrap=True)
    if short is not None:
        console.print(f"It does not fit in memory: {short}.", soft_wrap=True)
    if options.output.trace is not None:
        write_file(options.output.trace, chrome_json(trace))
    if options.output.json is not None:
        write_file(options.output.json, msgspec.json.format(trace.to_json()) + b"\n")
    return 0 if short is None else 1


def show(
    console: Console, programs: Sequence[Program], trace: Trace, needs_bytes: Sequence[int], verbose: bool
) -> None:
    """The engines, one a line; the first of many unless ``verbose``."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("engine", "stage", "busy", "communication", "waiting", "memory", "sent"):
        table.add_column(name, justify="right")
    shown = len(programs) if verbose else MOST_ROWS
    rows = zip(programs, trace.utilisation(), trace.communication_s(), trace.waiting_s(), needs_bytes, strict=True)
    for program, busy, talking_s, waiting_s, need in list(rows)[:shown]:
        table.add_row(
            str(program.rank), str(program.stage), f"{busy:.0%}", TIME.format(talking_s), TIME.format(waiting_s),
            BYTES.format(need), BYTES.format(bytes_sent(program)),
        )  # fmt: skip
    console.print(table)
    if len(programs) > shown:
        console.print(f"and {len(programs) - shown} engines more, which -v shows")
