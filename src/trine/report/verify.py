"""`trine verify`: is the parallel run equal to the run on one engine?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from trine.capture.model import Loss, Model, OptimizerFactory, check_trainable, make_model
from trine.errors import BadInput, CaptureFailed
from trine.plan.file import Answer, given_plan
from trine.plan.plan import Plan
from trine.report.fits import explained
from trine.report.integers import verify_integers
from trine.report.integers import write_json as write_integers
from trine.report.wish import (
    enough,
    header,
    is_by_hand,
    plan_by_hand,
    plan_from_file,
    refuse_alone,
    usual_plans,
    wish,
)
from trine.report.write import write_file
from trine.run.distance import Near
from trine.run.integer import Integers
from trine.run.job import Job
from trine.run.judge import ONE_ENGINE, Expected, Verdict, expected, judge
from trine.run.judge_replicas import judge_replicas
from trine.run.near import OneEngine, is_float32, judge_float32, one_engine
from trine.run.plain import check_runs, own_errors

if TYPE_CHECKING:
    from trine.cli.options import Options

Listener = Callable[[Verdict], None]


def verify(
    module: Any, plan: Plan | Answer | Path | str | None = None, *, inputs: Any = None, targets: Any = None,
    loss: Loss | None = None, optimizer: OptimizerFactory | None = None,
    batch_dims: dict[str, int | None] | None = None,
    training: bool = True, on: Sequence[str] = ("lockstep",), listener: Listener | None = None,
) -> list[Verdict]:  # fmt: skip
    """Hold plans against one engine, in float64; a model in float32 also in that, by its first step.

    ``module`` is an ``nn.Module`` with example ``inputs`` (and ``targets``, ``loss`` for training), or a Model.
    Without a plan the usual ones on two engines are tried; for a model without a graph only replicas
    are possible.  One verdict for each plan and runtime.  Raises PlanMismatch for a plan of another model, BadInput for
    one that cannot be equal, CaptureFailed for a plan of a model without a graph.
    """
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    if training:
        check_trainable(model)
    job = Job(model, training, float64=True)
    try:
        job.graph()
    except CaptureFailed:
        if plan is not None:
            raise
        return [judge_replicas(job, 2, float32=True)]
    plans = usual_plans(job) if plan is None else [plan_from_file(given_plan(plan), job, "given")]
    return verdicts(job, plans, on, listener)


def verdicts(job: Job, plans: Sequence[Plan], on: Sequence[str], listener: Listener | None = None) -> list[Verdict]:
    """Judge plans on runtimes; plans that stream the batch alike share a reference."""
    narrow = Job(job.model, job.training, captures=job.captures)
    references: dict[int, Expected] = {}
    singles: dict[int, OneEngine] = {}
    result = []
    for plan in plans:
        if plan.batch_norm == "local":
            raise BadInput(
                "The plan has local batch norm, which is not equal to one engine by its nature.",
                "verify judges plans that promise equality.", "Leave --batch-norm local out.",
            )  # fmt: skip
        m = plan.micro_batches
        if m not in references:
            with own_errors(narrow):
                references[m] = expected(job, plan)
                singles[m] = one_engine(narrow, plan, references[m].steps[0])
        for runtime in on:
            with explained(job, plan):
                verdict = judge(job, plan, runtime, reference=references[m])
                if is_float32(narrow):
                    verdict = replace(verdict, float32=judge_float32(narrow, plan, runtime, singles[m]))
            result.append(verdict)
            if listener is not None:
                listener(verdict)
    return result


def run(options: "Options") -> int:
    """The verb.  0: all equal; 1: something differs."""
    refuse_alone(options.plan)
    asked = wish(options, default_batch=4)
    console = Console(quiet=options.output.quiet, highlight=False)
    scenarios = options.scenario.scenario or ("training",)
    start, result, exact = time.monotonic(), list[Verdict](), list[Integers]()
    if options.how.integer and options.how.on:
        raise BadInput(
            "--integer was given together with --on.", "It judges operators one by one, on no runtime.",
            "Leave out the one or the other.",
        )  # fmt: skip
    console.print(header(asked.model, options.model))
    for training in sorted({name == "training" for name in scenarios}, reverse=True):
        if training:
            check_trainable(asked.model)
        job = Job(asked.model, training, float64=True)
        if options.how.integer:
            console.print(f"small integers in float64, {'training' if training else 'inference'}")
            exact += verify_integers(job, wished(asked.plan, options, job), console, verbose=options.output.verbose)
            continue
        steps = "three training steps" if training else "inference"
        console.print(f"float64, {steps}, batch {job.batch}; step 1 in float32 too")
        each = lambda verdict: show(console, verdict, options.output.verbose)  # noqa: E731
        try:
            job.graph()
        except CaptureFailed as error:
            result.append(only_replicas(job, options, error))
            each(result[-1])
            console.print(f"         the rest is not possible: {error}", soft_wrap=True)
            continue
        result += verdicts(job, wished(asked.plan, options, job), options.how.on or ("lockstep",), each)
    took = time.monotonic() - start
    console.quiet = False
    if options.how.integer:
        equal = not any(found.different for found in exact)
        console.print(f"{'Bit-equal' if equal else 'NOT equal'}: {len(exact)} plans in {took:.0f} s.")
        if options.output.json is not None:
            write_integers(options.output.json, exact)
        return 0 if equal else 1
    equal = all(verdict.equal for verdict in result)
    console.print(f"{'Equal' if equal else 'NOT equal'}: {len(result)} runs against one engine in {took:.0f} s.")
    if options.output.json is not None:
        write_json(options.output.json, result)
    return 0 if equal else 1


def wished(plan: Plan | None, options: "Options", job: Job) -> list[Plan]:
    """The plans to judge: that of a file, that by hand, or the usual ones."""
    if plan is not None:
        return [enough(plan_from_file(plan, job, str(options.plan.file)), options.engines.engines)]
    if is_by_hand(options.plan):
        return [enough(plan_by_hand(options.plan, job), options.engines.engines)]
    return usual_plans(job, options.engines.engines or 2)


def only_replicas(job: Job, options: "Options", error: CaptureFailed) -> Verdict:
    """What can be verified of a model without a graph; the error if something else was asked for."""
    asked = options.plan
    other = asked.file or asked.stages or asked.tensor or asked.micro_batches or asked.batch_norm == "local"
    if other or set(options.how.on or ("processes",)) != {"processes"}:
        raise error
    check_runs(job)
    return judge_replicas(job, asked.data or options.engines.engines or 2, asked.shares or (), float32=True)


def show(console: Console, verdict: Verdict, verbose: bool) -> None:
    """A verdict in three lines or four, all differences if asked for or if it is no."""
    worst = verdict.worst()
    word = "equal" if verdict.equal else "DIFFERS"
    console.print(f"  {word}  {verdict.plan.describe()}  on {verdict.on}", soft_wrap=True)
    if verdict.against != ONE_ENGINE:
        console.print(f"         {'equal to' if verdict.equal else 'differs from'} {verdict.against}", soft_wrap=True)
    console.print(
        f"         worst: {worst.kind} of step {worst.step + 1}, {worst.value:.1e} at {worst.where}"
        f" (limit {worst.limit:.1e})",
        soft_wrap=True,
    )
    console.print(f"         {float32_line(verdict.float32)}", soft_wrap=True)
    for share in verdict.shares:
        console.print(
            f"         {share.axis}: {share.of_having:.1%} of the FLOPs that have {share.cut} ran tiled", soft_wrap=True
        )
        if verbose and share.whole:
            names = ", ".join(name for name, _ in share.whole[:8])
            console.print(f"         whole: {names}", soft_wrap=True)
    if verbose or not verdict.equal:
        for d in verdict.differences:
            mark = "" if d.equal else "  <-- differs"
            console.print(
                f"           step {d.step + 1} {d.kind}: {d.value:.1e} at {d.where}, limit {d.limit:.1e}{mark}",
                soft_wrap=True,
            )


def float32_line(near: Near | None) -> str:
    """How far a plan in float32 is from float64, beside one engine."""
    if near is None:
        return "float32: not judged, the model has another type"
    own, *moved = near.one_engine
    more = f", {max(moved):.1e} with weights moved by one unit in the last place" if moved else ""
    mark = "" if near.enough else "  <-- farther"
    return f"float32: {near.distance:.1e} from float64, one engine {own:.1e}{more} (limit {near.limit:.1e}){mark}"


def float32_json(near: Near | None) -> dict[str, Any] | None:
    """The same as JSON."""
    return None if near is None else msgspec.to_builtins(near) | {"limit": near.limit, "enough": near.enough}


def write_json(path: Path, result: Sequence[Verdict]) -> None:
    """All verdicts as JSON."""
    rows = [
        {
            "plan": msgspec.to_builtins(v.plan), "on": v.on, "equal": v.equal, "against": v.against, "drift": v.drift,
            "bytes_sent": v.bytes_sent, "differences": msgspec.to_builtins(v.differences),
            "shares": msgspec.to_builtins(v.shares), "float32": float32_json(v.float32),
        }
        for v in result
    ]  # fmt: skip
    write_file(path, msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
