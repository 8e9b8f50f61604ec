"""`trine compare`: every way to use the engines, in every scenario, predicted and measured side by side."""

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trine.capture.model import Loss, Model, OptimizerFactory, check_trainable, make_model, resized
from trine.cost.profile import Profile, load_profile, save_profile
from trine.errors import BadInput, CaptureFailed, TrineError
from trine.measure.allocator import keep_memory
from trine.measure.calibrate import calibrate
from trine.measure.machine import read_machine
from trine.measure.probe import Probe, between, probe
from trine.plan.plan import Plan
from trine.planner.queues import second_replica_from
from trine.report.footing import measure_memory, predict_memory, with_process_size
from trine.report.forecast import Forecast, Profiles, Say, Setting, forecast
from trine.report.measured import PROBE_S, Truth, measure, timed
from trine.report.rows import INTERRUPTED, Batching, Comparison, Row
from trine.report.show import Screen
from trine.report.timeline import write_timeline
from trine.report.wish import (
    enough,
    header,
    is_by_hand,
    plan_by_hand,
    plan_from_file,
    refuse_alone,
    wish,
)  # fmt: skip
from trine.report.write import write_file
from trine.run.job import Job
from trine.run.plain import Plain, own_errors
from trine.scenario.scenario import BATCHES, KINDS, TITLES, Kind, Scenario

if TYPE_CHECKING:
    from trine.cli.options import Options

BUDGET_S = 180.0
MEASURING_SHARE = 0.65  # of the budget; the rest is for timing operators
BATCHING_S = 6.0  # of measuring, in all
MEMORY_SHARE = 0.25  # of the time for measuring, unless the rows need it for their times
BATCHES_SHOWN = (1, 2, 4, 8)
Listener = Callable[[Comparison], None]


def compare(
    module: Any, *, inputs: Any = None, targets: Any = None, loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None, batch_dims: dict[str, int | None] | None = None,
    engines: int | None = None, scenarios: Sequence[Kind] = KINDS, batch: int | None = None, on: str = "threads",
    budget_s: float = BUDGET_S, measured: bool = True, directory: Path | None = None, say: Say | None = None,
    listener: Listener | None = None, plans: Callable[[Job], Sequence[Plan]] | None = None,
    timeline: Path | None = None,
) -> Comparison:  # fmt: skip
    """Predict every row of every scenario, then measure those that promise most until ``budget_s`` is over.  A machine
    that was never calibrated is first, which takes up to a minute more.

    ``module`` is an ``nn.Module`` with example inputs, or a Model.  ``directory`` keeps what was measured of this
    machine (None: nothing is kept).  ``listener`` gets the comparison after each row.  ``timeline``: a file for what
    each engine does when, as predicted and as measured, of all rows with a plan.  An interrupt ends measuring and
    returns what is finished.
    """
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, optimizer, batch_dims)
    machine = read_machine()
    count = _engines(engines, machine.num_cores)
    keep_memory()
    speak = say or (lambda text: None)
    batch, notes = _own_batch(model, batch)
    fixed = _by_hand(model, [kind for kind in KINDS if kind in scenarios], batch, plans, count, notes)
    profile = calibrate(
        directory, progress=lambda what, share: speak(f"calibrating {share:.0%}: {what}"), machine=machine
    )
    profile = with_process_size(profile, speak, on)
    end = time.monotonic() + budget_s
    first = probe(count, duration_s=PROBE_S)
    profiles = Profiles(profile, _all_cores(directory, profile, count))
    forecasts: list[Forecast] = []
    try:
        for kind, by_hand in fixed.items():
            left_s = max(end - time.monotonic() - MEASURING_SHARE * budget_s, 0.0) / (len(fixed) - len(forecasts))
            setting = Setting(count, "processes" if on == "processes" else "threads", budget_s=left_s)
            scenario = Scenario(kind, batch or BATCHES[kind])
            speak(f"{kind}: planning")
            forecasts.append(_forecast(model, scenario, setting, profiles, speak, by_hand))
    except KeyboardInterrupt:
        if not forecasts:
            raise
        notes.append(INTERRUPTED)
    predict_memory(forecasts, profiles.one, on)
    _save(profiles, directory)

    def now() -> Comparison:
        rows = tuple(entry.row for f in forecasts for entry in f.entries)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Comparison(
            model.name, count, profile.machine, date, rows, tuple(batches), second_replica(batches, profile),
            tuple(notes), on,
        )  # fmt: skip

    def done() -> None:
        if timeline is not None:
            write_timeline(timeline, forecasts)
        if listener is not None:
            listener(now())

    batches: list[Batching] = []
    done()
    if measured and INTERRUPTED not in notes:
        try:
            base = between(first, probe(count, duration_s=PROBE_S))
            _measure_all(forecasts, on, base, end, speak, done)
            if "cloud" in fixed:
                batches += batching(model, profile, count, BATCHING_S, speak)
        except KeyboardInterrupt:
            notes.append(INTERRUPTED)
    return now()


def _forecast(
    model: Model, scenario: Scenario, setting: Setting, profiles: Profiles, say: Say, by_hand: Sequence[Plan]
) -> Forecast:
    """The forecast at the scenario's batch; what the model itself raises is BadInput."""
    sized = resized(model, scenario.batch)
    with own_errors(Job(sized, scenario.training)):
        return forecast(sized, scenario, setting, profiles, say, by_hand)


def _engines(asked: int | None, num_cores: int) -> int:
    """How many engines; BadInput for more than there are cores."""
    if asked is not None and asked > num_cores:
        raise BadInput(
            f"{asked} engines were asked for.", f"This machine has {num_cores} cores to be engines.",
            f"Give --engines 1 to {num_cores}.",
        )  # fmt: skip
    return asked or num_cores


def _own_batch(model: Model, batch: int | None) -> tuple[int | None, list[str]]:
    """The batch of every scenario: as asked for, or the only one that the model takes (None: each has its own); and
    what is to be noted of that."""
    if batch is not None or not model.fixed:
        return batch, []
    batch = model.inputs.batch
    return batch, [f"{model.name} was exported with a batch of {batch}, so every scenario here has that batch."]


def _by_hand(
    model: Model, kinds: Sequence[Kind], batch: int | None, plans: Callable[[Job], Sequence[Plan]] | None, engines: int,
    notes: list[str],
) -> dict[Kind, list[Plan]]:  # fmt: skip
    """Scenarios with the plans asked for by hand, made before anything is measured.  A scenario in which they are not
    possible (one request cannot be cut) is left out with a note; an error if that is so in all."""
    result: dict[Kind, list[Plan]] = {}
    first: TrineError | None = None
    for kind in kinds:
        result[kind] = []
        try:
            if kind == "training":
                check_trainable(model)
            if plans is not None:
                job = Job(resized(model, batch or BATCHES[kind]), kind == "training")
                result[kind] = [enough(plan, engines) for plan in plans(job)]
        except CaptureFailed:
            pass  # its rows will say why
        except TrineError as error:
            del result[kind]
            first = first or error
            notes.append(f"Not compared in {TITLES[kind]}: {error}")
    if first is not None and not result:
        raise first
    return result


def batching(model: Model, profile: Profile, engines: int, seconds: float, say: Say) -> list[Batching]:
    """One engine answering batches of several sizes, measured, and replicas beside it."""
    crowd = crowding(profile, engines)
    result = []
    for batch in (model.inputs.batch,) if model.fixed else BATCHES_SHOWN:
        say(f"measuring batches of {batch} on one engine")
        plain = Plain(Job(resized(model, batch), False), None, 1)
        try:
            plain.step()
            time_s = statistics.median(timed(plain.step, seconds / len(BATCHES_SHOWN)))
        finally:
            plain.close()
        busy_s = time_s * crowd
        result.append(Batching(batch, time_s, batch / time_s, busy_s, engines * batch / busy_s))
    return result


def crowding(profile: Profile, busy: int) -> float:
    """How much slower a replica is while so many are busy: by the measured rate of convolutions alone over that."""
    return max(profile.rate("conv", "float32", 1) / profile.rate("conv", "float32", busy), 1.0)


def second_replica(batches: Sequence[Batching], profile: Profile) -> float | None:
    """The predicted arrival rate from which a second replica helps, from requests answered one by one; infinite where
    it never does."""
    single = next((b for b in batches if b.batch == 1), None)
    return None if single is None else second_replica_from(single.latency_s, single.latency_s * crowding(profile, 2))


def _all_cores(directory: Path | None, profile: Profile, count: int) -> Profile:
    """The profile of operators that use all cores: apart, for a profile holds for one number of intra-op threads."""
    name = f"{profile.fingerprint}-{count}-threads"
    kept = load_profile(directory, name) if directory is not None else None
    return kept or msgspec.structs.replace(profile, fingerprint=name, operators={}, num_threads=count)


def _save(profiles: Profiles, directory: Path | None) -> None:
    if directory is not None:
        save_profile(profiles.one, directory)
        save_profile(profiles.all_cores, directory)


def _measure_all(
    forecasts: Sequence[Forecast], on: str, base: Probe, end: float, say: Say, done: Callable[[], None]
) -> None:
    """Measure rows of all scenarios in turn, the most promising of each first, until the time is over; then memory."""
    queue = []
    for f in forecasts:
        plain = ("one engine", "PyTorch, all cores")
        runnable = [e for e in f.entries if e.plan is not None or e.replicas or e.row.row in plain]
        runnable.sort(key=lambda e: e.row.time_s)
        rest = [e for e in runnable[1:] if e.row.row not in plain]
        runnable = [*runnable[:1], *(e for e in runnable[1:] if e.row.row in plain), *rest]
        queue += [(number, f, e) for number, e in enumerate(runnable)]
    queue.sort(key=lambda item: item[0])
    truths = {id(f): Truth(f.job) for f in forecasts}
    with_memory = on in ("threads", "processes")
    timed_end = end - MEMORY_SHARE * max(end - time.monotonic(), 0.0) * with_memory
    measured: dict[tuple[int, str], Row] = {}
    for number, (_, f, e) in enumerate(queue):
        twin = measured.get((id(f), e.row.describes))
        if twin is not None and e.plan is not None:
            e.row = msgspec.structs.replace(
                e.row, measured=twin.measured, measured_at=twin.measured_at, verified=twin.verified, error=twin.error,
                corrected_error=twin.corrected_error, note=f"The same plan as {twin.row}, measured once.",
            )  # fmt: skip
            done()
            continue
        if time.monotonic() >= end:
            e.row = msgspec.structs.replace(e.row, note=f"{e.row.note} Not measured: the budget was over.".strip())
            continue
        say(f"measuring {number + 1} of {len(queue)}: {e.row.scenario}, {e.row.row} ({e.row.describes})")
        with own_errors(f.job):
            left_s = (timed_end - time.monotonic()) / (2 * (len(queue) - number))
            measure(e, f, truths[id(f)], on, base, seconds=max(0.5, min(3.0, left_s)))
        measured[id(f), e.row.describes] = e.row
        done()
    if with_memory:
        measure_memory([(f, e) for _, f, e in queue], on, end, say, done)


def run(options: "Options") -> int:
    """The verb.  0: the table is there; 1: a measured row is not equal to one engine; 130: interrupted, what was
    finished is shown."""
    refuse_alone(options.plan)
    on = options.how.on or ("threads",)
    if len(on) > 1:
        raise BadInput(f"--on {','.join(on)} was given.", "compare runs one runtime at a time.", "Give one of them.")
    asked = wish(options, BATCHES["training"])
    scenarios: tuple[Kind, ...] = options.scenario.scenario or KINDS  # type: ignore[assignment]
    screen = Screen(options.output.quiet)
    by_hand: Callable[[Job], Sequence[Plan]] | None = None
    if asked.plan is not None:
        plan = asked.plan
        by_hand = lambda job: [plan_from_file(plan, job, str(options.plan.file))]  # noqa: E731
    elif is_by_hand(options.plan):
        by_hand = lambda job: [plan_by_hand(options.plan, job)]  # noqa: E731
    budget_s = options.how.budget_s or BUDGET_S
    screen.start(header(asked.model, options.model), budget_s, options.how.no_measure)
    result = compare(
        asked.model, engines=options.engines.engines, scenarios=scenarios, batch=options.scenario.batch, on=on[0],
        budget_s=budget_s, measured=not options.how.no_measure, directory=options.cache,
        say=screen.say, plans=by_hand, timeline=options.output.trace,
        listener=(lambda c: write_json(options.output.json, c)) if options.output.json is not None else None,
    )  # fmt: skip
    screen.show(result, options.output.verbose)
    if options.output.json is not None:
        write_json(options.output.json, result)
    if result.interrupted:
        return 130
    return 1 if any(row.verified is False for row in result.rows) else 0


def write_json(path: Path | None, result: Comparison) -> None:
    """The comparison as JSON; written after each row, so that nothing is lost."""
    if path is not None:
        write_file(path, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
