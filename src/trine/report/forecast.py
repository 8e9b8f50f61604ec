"""The predicted half of a comparison: for one scenario, the plan of each row and what it should give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from trine.capture.model import Model
from trine.cost.profile import Profile
from trine.cost.segments import LinkKind, MeasuredCosts
from trine.errors import CaptureFailed
from trine.measure.machine import machine_cluster, read_machine
from trine.measure.operators import measure_operators, optimizer_name
from trine.plan.plan import Plan
from trine.planner.candidates import candidates, is_pure, with_room
from trine.planner.predict import Prediction, predict
from trine.program.program import Program
from trine.report.rows import Figures, Row
from trine.run.job import Job
from trine.run.judge import ONE_ENGINE, against
from trine.run.plain import check_runs
from trine.scenario.scenario import TITLES, Scenario
from trine.trace.trace import Trace

Say = Callable[[str], None]


@dataclass
class Entry:
    """One row on its way: its plan (None: the plain module), Programs, prediction, and later what was measured.

    replicas: of a model without a graph; traces: predicted, and measured once it ran.
    """

    row: Row
    plan: Plan | None = None
    programs: tuple[Program, ...] = ()
    num_threads: int = 1
    replicas: int = 0
    traces: tuple[Trace, ...] = ()


@dataclass
class Forecast:
    """All rows of one scenario, and the job that they run."""

    scenario: Scenario
    job: Job
    entries: list[Entry] = field(default_factory=list)
    died: dict[str, str] = field(default_factory=dict)


@dataclass
class Profiles:
    """What is known of this machine: with one intra-op thread an engine, and with all cores in one operator."""

    one: Profile
    all_cores: Profile


@dataclass(frozen=True)
class Setting:
    """How many engines there are, how they are linked, and how long operators may be timed for one scenario."""

    engines: int
    link: LinkKind
    budget_s: float
    operator_s: float = 0.05


def forecast(
    model: Model, scenario: Scenario, setting: Setting, profiles: Profiles, say: Say, fixed: Sequence[Plan] = ()
) -> Forecast:
    """Choose a plan for each row and predict it, from single operators timed alone.

    ``fixed``: plans asked for by hand, which take the place of the search.
    """
    job = Job(model, scenario.training)
    result = Forecast(scenario, job)
    try:
        job.graph()
    except CaptureFailed as error:
        say(str(error))
        check_runs(job)
        result.entries += without_graph(scenario, setting.engines, error)
        return result
    one_plan = Plan(batch=scenario.batch)
    one = job.compiled(one_plan).programs()
    found = {plan.key: plan for plan in fixed}
    if not fixed:
        found, result.died = candidates(job.graph_for, scenario, setting.engines)
    known = {plan.key: job.compiled(plan).programs() for plan in found.values()}
    optimizer = job.optimizer

    def cost(programs: Sequence[Program]) -> MeasuredCosts:
        return MeasuredCosts(profiles.one, len(programs), setting.link, optimizer_name(model.optimizer))

    def told(plan: Plan, programs: tuple[Program, ...], than_s: float | None = None) -> tuple[Prediction, Trace]:
        return held(job, plan, predict(plan, programs, cost(programs), than_s, job.optimizer_states))

    def time(programs: Sequence[Program], share: float) -> None:
        profiles.one = measure_operators(
            programs, profiles.one, budget_s=setting.budget_s * share, operator_s=setting.operator_s,
            optimizer=optimizer, progress=lambda what, part: say(f"timing operators {part:.0%}: {what}"),
        )  # fmt: skip

    time(one, 0.25)
    rough = {p.key: told(p, known[p.key])[0] for p in found.values()}
    here = machine_cluster(read_machine(), num_engines=setting.engines)
    plans = with_room(found, rough, here, result.died) if not fixed else list(fixed)
    chosen = choose(plans, {name: p.time_s for name, p in rough.items()})
    finalists = {plan.key: plan for plan in chosen.values()}
    for name in finalists:
        time(known[name], 0.5 / len(finalists))
    profiles.all_cores = measure_operators(
        one, profiles.all_cores, budget_s=setting.budget_s * 0.25, operator_s=setting.operator_s, optimizer=optimizer,
        intra_op_threads=setting.engines, progress=lambda what, part: say(f"timing operators on all cores {part:.0%}"),
    )  # fmt: skip
    single = told(one_plan, one)[0]
    whole = MeasuredCosts(profiles.all_cores, 1, "threads", optimizer_name(model.optimizer))
    cores = predict(one_plan, one, whole, None, job.optimizer_states)[0]
    cores = msgspec.structs.replace(cores, reason="Each operator is cut inside the library, which waits at its end.")
    result.entries.append(entry(scenario, "one engine", None, one, single, 1, cost(one).timed_share(one)))
    result.entries.append(
        entry(scenario, "PyTorch, all cores", None, one, cores, setting.engines, whole.timed_share(one))
    )
    final = {name: told(plan, known[name], single.time_s) for name, plan in finalists.items()}
    timed = {name: cost(known[name]).timed_share(known[name]) for name in finalists}
    for kind in ("data", "model", "tensor"):
        if kind in chosen:
            name = chosen[kind].key
            result.entries.append(entry(scenario, kind, chosen[kind], known[name], final[name][0], 1, timed[name]))
            result.entries[-1].traces = (final[name][1],)
        else:
            result.entries.append(impossible(scenario, kind, result.died))
    if final:
        best = min(final, key=lambda name: final[name][0].time_s)
        result.entries.append(entry(scenario, "best mix", finalists[best], known[best], final[best][0], 1, timed[best]))
        result.entries[-1].traces = (final[best][1],)
    return result


def held(job: Job, plan: Plan, told: tuple[Prediction, Trace]) -> tuple[Prediction, Trace]:
    """A prediction whose reason says what the plan is held against, where that is not simply one engine."""
    known = against(job.graph_for(plan.micro_batches), plan)
    if known == ONE_ENGINE or plan.batch_norm == "local":
        return told
    found, trace = told
    return msgspec.structs.replace(found, reason=f"{found.reason} Held against {known}.".strip()), trace


def choose(plans: Sequence[Plan], rough: dict[str, float]) -> dict[str, Plan]:
    """The most promising plan of each kind, those that use the most engines first, and the best two of all."""
    result: dict[str, Plan] = {}
    for kind in ("data", "model", "tensor"):
        pure = [plan for plan in plans if is_pure(plan, kind)]
        if pure:
            most = max(plan.num_engines for plan in pure)
            result[kind] = min((p for p in pure if p.num_engines == most), key=lambda p: rough[p.key])
    for number, plan in enumerate(sorted(plans, key=lambda p: rough[p.key])[:2]):
        result[f"best {number}"] = plan
    return result


def entry(
    scenario: Scenario,
    name: str,
    plan: Plan | None,
    programs: tuple[Program, ...],
    p: Prediction,
    threads: int,
    timed: float,
) -> Entry:
    """A row with its prediction, stamped now."""
    figures = Figures(p.time_s, scenario.throughput_per_s(p.time_s), p.memory_bytes, p.bytes_sent)
    note = (
        ""
        if timed >= 0.995
        else f"{1 - timed:.0%} of the predicted work is operators not timed here, predicted by rates."
    )
    row = Row(
        TITLES[scenario.kind], name, msgspec.to_builtins(plan) if plan is not None else None,
        plan.describe() if plan is not None else f"{threads} intra-op thread{'s' if threads > 1 else ''}",
        figures, None, None, p.reason, datetime.now(UTC).isoformat(timespec="milliseconds"),
        calibrated=p.calibrated, note=note,
    )  # fmt: skip
    return Entry(row, plan, programs, threads)


def impossible(scenario: Scenario, kind: str, died: dict[str, str]) -> Entry:
    """A row that no plan can fill, with the reason."""
    start = {
        "data": "data 2 × stages 1 × tensor 1",
        "model": "data 1 × stages 2",
        "tensor": "data 1 × stages 1 × tensor 2",
    }
    why = next((text for name, text in died.items() if name.startswith(start[kind])), "")
    if kind == "data" and scenario.batch == 1:
        why = "One request cannot be split over replicas: each replica would answer a request of its own."
    row = Row(
        TITLES[scenario.kind], kind, None, "not possible", None, None, None, why or "No cut of this kind is possible."
    )
    return Entry(row)


def without_graph(scenario: Scenario, engines: int, error: CaptureFailed) -> list[Entry]:
    """Rows of a model that cannot be captured: the plain module, and replicas of it.  Nothing is predicted."""
    title = TITLES[scenario.kind]
    rows = []
    for name, threads in (("one engine", 1), ("PyTorch, all cores", engines)):
        how = f"{threads} intra-op thread{'s' if threads > 1 else ''}"
        rows.append(Entry(Row(title, name, None, how, None, None, None, "The module as it is."), num_threads=threads))
    if 1 < engines <= scenario.batch:
        how, why = f"{engines} replicas in processes", "Each engine runs the whole module on its rows."
        if scenario.training:
            how += " (DistributedDataParallel)"
            why = "Each engine runs the whole module on its rows, with batch norm over all of them."
        why += " It has no graph, so nothing is predicted."
        rows.append(Entry(Row(title, "data", None, how, None, None, None, why), replicas=engines))
    else:
        rows.append(impossible(scenario, "data", {}))
    place = f" at {error.line.rstrip(':')}" if error.line else ""
    why = f"Needs the graph, which could not be captured{place}: {error.why.rstrip('.')}."
    rows += [
        Entry(Row(title, name, None, "not possible", None, None, None, why)) for name in ("model", "tensor", "best mix")
    ]
    return rows
