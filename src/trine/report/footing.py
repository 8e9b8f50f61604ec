"""Memory of a comparison's rows: predicted from Programs and the profile, measured in fresh processes.

Engines that are threads cannot be told apart, for one frees what another made: both numbers are of all of them.
Engines in processes of their own, and replicas of a model without a graph, are not measured.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from trine.cost.profile import Profile
from trine.cost.segments import MeasuredCosts
from trine.errors import TrineError
from trine.measure.operators import optimizer_name
from trine.report.forecast import Entry, Forecast, Say
from trine.report.rows import Memory
from trine.run.job import Job
from trine.run.process_size import measure_process_size
from trine.run.usage import Usage, usage_of_module, usage_of_programs
from trine.simulate.memory import memory, peak_together
from trine.simulate.simulate import simulate


def with_process_size(profile: Profile, say: Say) -> Profile:
    """The profile with the size of a process, measured unless it is there."""
    if profile.process is not None:
        return profile
    say("calibrating: size of a process")
    return msgspec.structs.replace(profile, process=measure_process_size())


def predict_memory(forecasts: Sequence[Forecast], profile: Profile) -> None:
    """Put the prediction into every row that has one of its time."""
    for forecast in forecasts:
        for entry in forecast.entries:
            if entry.row.predicted is not None and entry.programs:
                entry.row = msgspec.structs.replace(entry.row, memory=predicted(entry, forecast.job, profile))


def predicted(entry: Entry, job: Job, profile: Profile) -> Memory:
    """Of one row, with its engines as threads."""
    costs = MeasuredCosts(profile, len(entry.programs), "threads", optimizer_name(job.model.optimizer))
    trace = simulate(entry.programs, costs)
    states = job.optimizer_states
    tensors = peak_together(entry.programs, trace, states)
    given = sum(tensor.nbytes for tensor in job.tensors().values())
    each = [memory(program, states) for program in entry.programs]
    resting = given + sum(estimate.parameters + estimate.optimizer for estimate in each)
    resident = None if profile.process is None else profile.process.resident_bytes(tensors + given, resting)
    return Memory(tensors, resident)


def measure_memory(queue: Sequence[tuple[Forecast, Entry]], end: float, say: Say, done: Callable[[], None]) -> None:
    """Measure the rows that were timed, in this order and each plan once, until the time is over."""
    known: dict[tuple[int, str], Usage] = {}
    for forecast, entry in queue:
        row, key = entry.row, (id(forecast), entry.row.describes)
        if row.measured is None or row.memory is None or (key not in known and time.monotonic() > end):
            continue
        if key not in known:
            say(f"measuring memory: {row.scenario}, {row.row} ({row.describes})")
            try:
                known[key] = usage(entry, forecast.job)
            except TrineError as error:
                entry.row = msgspec.structs.replace(row, note=f"{row.note} Memory not measured: {error}".strip())
                continue
        memory = row.memory.measured(known[key].tensors, known[key].resident)
        entry.row = msgspec.structs.replace(row, memory=memory)
        done()


def usage(entry: Entry, job: Job) -> Usage:
    """What an entry takes, in a process of its own."""
    if entry.plan is None:
        return usage_of_module(job, entry.num_threads, job.optimizer)
    return usage_of_programs(entry.programs, job, job.step(entry.plan), job.optimizer)
