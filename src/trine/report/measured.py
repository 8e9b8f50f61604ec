"""The measured half of a comparison: a row is run, proved equal and timed, between two probes of the machine."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import torch

from trine.errors import BadInput
from trine.measure.probe import Probe, probe
from trine.plan.plan import Plan
from trine.program.compile import batches
from trine.report.fits import explained
from trine.report.forecast import Entry, Forecast
from trine.report.rows import Figures, Row
from trine.run.collect import Whole
from trine.run.job import Job, reference_steps
from trine.run.judge_replicas import DROPOUT_OFF, judge_replicas
from trine.run.near import OneEngine
from trine.run.plain import Plain
from trine.run.replicas import Replicas
from trine.run.runner import runner
from trine.trace.trace import Trace

PROBE_S = 0.5
MOST_CHANGE = 0.10  # of a probe during a row, above which the row is measured again


@dataclass
class Truth:
    """One engine by number of micro-batches: in float64, and how far its float32 is from that."""

    job: Job
    known: dict[int, OneEngine] = field(default_factory=dict)

    def equal(self, plan: Plan, whole: Whole) -> bool:
        """Whether a plan's first step is as near to the float64 reference as one engine's float32 step."""
        weights = self.job.step(plan).weights
        return self.one_engine(plan.micro_batches, weights).near(whole).enough

    def plain(self, num_threads: int) -> bool:
        """The same of the plain module with so many intra-op threads."""
        one, before = self.one_engine(1, (1.0,)), torch.get_num_threads()
        torch.set_num_threads(num_threads)
        try:
            far = one.run()
        finally:
            torch.set_num_threads(before)
        return one.judged(far).enough

    def one_engine(self, micro_batches: int, weights: tuple[float, ...]) -> OneEngine:
        """Its step over the batch in so many parts, of these weights."""
        if micro_batches not in self.known:
            wide = Job(self.job.model, self.job.training, float64=True, captures=self.job.captures)
            rows = batches(self.job.batch, micro_batches)
            want = next(reference_steps(wide, rows, weights, 1))
            self.known[micro_batches] = OneEngine(self.job, rows, weights, want)
        return self.known[micro_batches]


@dataclass(frozen=True)
class Ready:
    """An entry that has made its first steps.  whole: what the first one gave, None for the plain module; step: one
    more; trace: one more that is recorded, where that is possible."""

    whole: Whole | None
    step: Callable[[], object]
    trace: Callable[[], Trace] | None = None


def measure(entry: Entry, forecast: Forecast, truth: Truth, on: str, base: Probe, seconds: float) -> None:
    """Run an entry: one step that is proved equal, then timed steps for about ``seconds``; these twice if the machine
    changed meanwhile."""
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        with ready(entry, forecast.job, on) as run:
            whole = run.whole
            before = probe(base.concurrency, duration_s=PROBE_S)
            times, after = timed(run.step, seconds), probe(base.concurrency, duration_s=PROBE_S)
            if before.change(after) > MOST_CHANGE:
                before = after
                times, after = timed(run.step, seconds), probe(base.concurrency, duration_s=PROBE_S)
            if run.trace is not None:
                entry.traces = (*entry.traces[:1], run.trace())
    except BadInput as error:  # of replicas that cannot be sent to other processes
        entry.row = msgspec.structs.replace(entry.row, describes="not possible", reason=str(error))
        return
    row, scenario = entry.row, forecast.scenario
    time_s = statistics.median(times)
    verified = None
    sent = None
    if whole is not None and entry.plan is not None:
        verified = None if entry.plan.batch_norm == "local" else truth.equal(entry.plan, whole)
        sent = max(whole.bytes_sent)
    elif whole is not None:
        verified, row = _alike(entry, forecast.job)
        sent = max(whole.bytes_sent)
    else:
        verified, sent = truth.plain(entry.num_threads) if entry.programs else None, 0
    figures = Figures(time_s, scenario.throughput_per_s(time_s), None, sent)
    change = before.change(after)
    error = corrected = None
    if row.predicted is not None:
        error = row.predicted.time_s / time_s - 1
        corrected = row.predicted.time_s * slowdown(base, before, after) / time_s - 1
    note = row.note
    if row.predicted is not None and sent is not None and row.predicted.bytes_sent not in (None, sent):
        note = f"{note} Bytes sent were predicted as {row.predicted.bytes_sent} and counted as {sent}.".strip()
    if change > MOST_CHANGE:
        note = f"{note} The machine's speed changed by {change:.0%} while this row ran.".strip()
    entry.row = msgspec.structs.replace(
        row, measured=figures, measured_at=began, verified=verified, error=error,
        corrected_error=corrected, note=note,
    )  # fmt: skip


def _alike(entry: Entry, job: Job) -> tuple[bool | None, Row]:
    """Whether replicas equal one engine, in float64, and the row with a note how that was found."""
    try:
        equal = judge_replicas(Job(job.model, job.training, float64=True), entry.replicas, num_steps=1).equal
    except BadInput as error:  # other random numbers than dropout
        return None, msgspec.structs.replace(entry.row, note=f"Not verified: {error}")
    return equal, msgspec.structs.replace(entry.row, note=f"Verified {DROPOUT_OFF}.")


def slowdown(base: Probe, before: Probe, after: Probe) -> float:
    """How much slower the machine was around a row than when operators were timed: the mean over the probe's rates."""
    ratios = []
    for kind, rate in base.rates().items():
        ratios.append(2 * rate / (before.rates()[kind] + after.rates()[kind]))
    return statistics.geometric_mean(ratios)


@contextmanager
def ready(entry: Entry, job: Job, on: str) -> Iterator[Ready]:
    """Engines, replicas or the plain module, ended afterwards."""
    if entry.replicas:
        with Replicas(job, job.optimizer, entry.replicas) as replicas:
            whole = replicas.step()
            replicas.step(tensors=False)
            yield Ready(whole, lambda: replicas.step(tensors=False))
    elif entry.plan is None:
        with closing(Plain(job, job.optimizer, entry.num_threads)) as plain:
            plain.step()
            yield Ready(None, plain.step)
    else:
        step, title = job.step(entry.plan), entry.plan.describe()
        with explained(job, entry.plan), closing(runner(on, entry.programs, job.state(), job.optimizer)) as engines:
            whole = engines.step(step)
            engines.step(step, tensors=False)
            yield Ready(whole, lambda: engines.step(step, tensors=False), lambda: engines.trace(step, title))


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of at least three calls, and of as many more as fit."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
