"""Memory of a comparison's rows: predicted from Programs and the profile, measured in fresh processes.

Engines that are threads cannot be told apart, for one frees what another made: both numbers are of all of them.  Of
engines in processes of their own they are those of the fullest.  Replicas of a model without a graph are not measured.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from trine.cost.profile import Profile
from trine.cost.segments import MeasuredCosts
from trine.errors import TrineError
from trine.measure.operators import optimizer_name
from trine.program.program import Program
from trine.report.forecast import Entry, Forecast, Say
from trine.report.rows import Memory
from trine.run.job import Job
from trine.run.memory import Usage
from trine.run.process_size import measure_engine_base, measure_process_size
from trine.run.usage import usage_of_module, usage_of_processes, usage_of_programs
from trine.simulate.memory import memory, peak_together
from trine.simulate.simulate import simulate


def with_process_size(profile: Profile, say: Say, on: str = "threads") -> Profile:
    """The profile with the size of a process, and of an engine's own if it runs ``on`` processes, measured unless they
    are there."""
    process = profile.process
    if process is None:
        say("calibrating: size of a process")
        process = measure_process_size()
    if on == "processes" and process is not None and process.engine_base_bytes is None:
        say("calibrating: size of an engine's process")
        process = msgspec.structs.replace(process, engine_base_bytes=measure_engine_base())
    return msgspec.structs.replace(profile, process=process)


def predict_memory(forecasts: Sequence[Forecast], profile: Profile, on: str) -> None:
    """Put the prediction into every row that has one of its time."""
    for forecast in forecasts:
        for entry in forecast.entries:
            if entry.row.predicted is not None and entry.programs:
                apart = on == "processes" and entry.plan is not None
                known = fullest(entry.programs, forecast.job, profile) if apart else None
                found = known or predicted(entry, forecast.job, profile)
                entry.row = msgspec.structs.replace(entry.row, memory=found)


def fullest(programs: Sequence[Program], job: Job, profile: Profile) -> Memory:
    """Of the fullest of engines that are processes."""
    found = [of_engine(program, job.optimizer_states, profile) for program in programs]
    residents = [resident for _, resident in found if resident is not None]
    return Memory(max(tensors for tensors, _ in found), max(residents, default=None))


def of_engine(program: Program, states: float, profile: Profile) -> tuple[int, int | None]:
    """Tensors and resident size of an engine that is a process."""
    estimate = memory(program, states)
    given = sum(program.tiles[tile].num_bytes for tile in program.feeds)
    if profile.process is None:
        return estimate.total, None
    resting = given + estimate.parameters + estimate.optimizer
    return estimate.total, profile.process.resident_bytes(estimate.total + given, resting, own_process=True)


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


def measure_memory(
    queue: Sequence[tuple[Forecast, Entry]], on: str, end: float, say: Say, done: Callable[[], None]
) -> None:
    """Measure the rows that were timed, in this order and each plan once, until the time is over."""
    known: dict[tuple[int, str], Usage] = {}
    for forecast, entry in queue:
        row, key = entry.row, (id(forecast), entry.row.describes)
        if row.measured is None or row.memory is None or (key not in known and time.monotonic() > end):
            continue
        if key not in known:
            say(f"measuring memory: {row.scenario}, {row.row} ({row.describes})")
            try:
                known[key] = usage(entry, forecast.job, on)
            except TrineError as error:
                entry.row = msgspec.structs.replace(row, note=f"{row.note} Memory not measured: {error}".strip())
                continue
        memory = row.memory.measured(known[key].tensors, known[key].resident)
        entry.row = msgspec.structs.replace(row, memory=memory)
        done()


def usage(entry: Entry, job: Job, on: str) -> Usage:
    """What an entry takes, in processes of its own."""
    if entry.plan is None:
        return usage_of_module(job, entry.num_threads, job.optimizer)
    step = job.step(entry.plan)
    if on != "processes":
        return usage_of_programs(entry.programs, job, step, job.optimizer)
    each = usage_of_processes(entry.programs, job, step, job.optimizer)
    residents = [engine.resident for engine in each if engine.resident is not None]
    return Usage(max(engine.tensors for engine in each), max(residents, default=None))
