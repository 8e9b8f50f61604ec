"""`trine engines`: what this machine has to compute with and, once it was measured, how fast that is."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from trine.cluster.cluster import Cluster
from trine.cost.profile import Profile, load_profile
from trine.measure.calibrate import Progress, calibrate
from trine.measure.machine import Machine, machine_cluster, read_machine
from trine.report.write import write_file
from trine.units import BANDWIDTH, BYTES, FLOPS_PER_S, TIME

if TYPE_CHECKING:
    from trine.cli.options import Options

SHOWN_SIZES_BYTES = (1024, 64 * 1024, 1024**2, 16 * 1024**2)
NOT_MEASURED = (
    "Not measured: the rates are estimates, from the clock and the width of the vectors, and round guesses."
    " `trine engines --calibrate` measures them in less than a minute."
)
HOW = (
    "Measured {date} with torch {torch}: medians of operators of one thread each, on one core alone and on all {cores}"
    " at once; the rates are those of one core. p2p is an exchange: both send and receive at once."
)


DISTURBED = "Meanwhile {share:.0%} of the cores' time went to other work: calibrate again (--fresh) when it is quiet."
MOST_DISTURBED = 0.1


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """What the verb answers: the machine, the cluster that it makes, and what was measured (None: nothing yet)."""

    machine: Machine
    cluster: Cluster
    profile: Profile | None = None


def engines(
    directory: Path | None, *, measure: bool = False, fresh: bool = False, progress: Progress | None = None
) -> Engines:
    """This machine; with ``measure`` calibrated if it was not, with ``fresh`` in any case.

    ``directory`` is where measured profiles are kept (None: nowhere).
    """
    machine = read_machine()
    if measure or fresh:
        profile: Profile | None = calibrate(directory, fresh=fresh, progress=progress, machine=machine)
    else:
        profile = load_profile(directory, machine.fingerprint) if directory is not None else None
    return Engines(machine=machine, cluster=machine_cluster(machine, profile), profile=profile)


def run(options: "Options") -> int:
    """Print what this machine has; return the exit status 0."""
    output = options.output
    errors = Console(stderr=True)

    def say(what: str, share: float) -> None:
        errors.print(f"{share:4.0%} {what}", highlight=False)

    found = engines(
        options.cache,
        measure=options.engines.calibrate,
        fresh=options.engines.fresh,
        progress=None if output.quiet else say,
    )
    if output.json is not None:
        write_json(found, output.json)
    show(found, Console(), quiet=output.quiet)
    return 0


def write_json(found: Engines, path: Path) -> None:
    """The answer as JSON."""
    write_file(path, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def show(found: Engines, console: Console, *, quiet: bool = False) -> None:
    """Print the tables; ``quiet`` leaves out how they came about."""
    console.print(machine_table(found, console))
    profile = found.profile
    if profile is None:
        if not quiet:
            console.print(NOT_MEASURED, highlight=False)
        return
    for table in (rates_table(profile, console), launch_table(profile, console), links_table(profile, console)):
        console.print(table)
    if not quiet:
        how = HOW.format(date=profile.date, torch=profile.torch_version, cores=profile.num_threads)
        console.print(how, highlight=False)
    if profile.disturbance > MOST_DISTURBED:
        console.print(DISTURBED.format(share=profile.disturbance), highlight=False)


def _table(console: Console, title: str, *columns: str) -> Table:
    """A table with rules on a terminal, plain columns elsewhere; all columns but the first to the right."""
    plain = not console.is_terminal
    table = Table(title=title, title_justify="left", box=None if plain else SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def machine_table(found: Engines, console: Console) -> Table:
    """Cores, caches, memory, GPUs."""
    machine, engine = found.machine, found.cluster.engines[0]
    table = _table(console, "Engines of this machine", "what", "here")
    table.columns[1].justify = "left"
    clock = f" at {machine.clock_hz / 1e9:.2g} GHz" if machine.clock_hz else ""
    table.add_row("cores", f"{machine.num_cores} of {machine.num_cores_online} for trine: {machine.model_name}{clock}")
    table.add_row("caches", ", ".join(f"{level} {BYTES.format(size)}" for level, size in machine.caches_bytes.items()))
    table.add_row("memory", f"{BYTES.format(machine.memory_bytes)}, {BYTES.format(engine.memory_bytes)} a core")
    gpus = [f"{gpu.name}, {BYTES.format(gpu.memory_bytes)}, preset {gpu.preset or 'none'}" for gpu in machine.gpus]
    table.add_row("GPUs", "\n".join(gpus) or "none")
    if found.profile is None:
        rates = ", ".join(f"{dtype} {FLOPS_PER_S.format(rate)}" for dtype, rate in engine.peak_flops_per_s.items())
        table.add_row("a core, estimated", rates)
    return table


def rates_table(profile: Profile, console: Console) -> Table:
    """FLOP/s and bytes/s of one core by kind of work and data type, at each concurrency."""
    table = _table(console, "Rates of one core", "work", *(_busy(rates.concurrency) for rates in profile.rates))
    for work in ("matmul", "conv", "depthwise"):
        for dtype in profile.rates[0].matmul_flops_per_s:
            values = [profile.rate(work, dtype, rates.concurrency) for rates in profile.rates]
            table.add_row(f"{work} {dtype}", *map(FLOPS_PER_S.format, values))
    streams = [BANDWIDTH.format(rates.stream_bytes_per_s) for rates in profile.rates]
    table.add_row("memory stream", *streams)
    return table


def launch_table(profile: Profile, console: Console) -> Table:
    """What starting costs, at each concurrency."""
    table = _table(console, "Starting one", "what", *(_busy(launch.concurrency) for launch in profile.launches))
    table.add_row("operator, forward", *(TIME.format(launch.forward_s) for launch in profile.launches))
    table.add_row("operator, backward", *(TIME.format(launch.backward_s) for launch in profile.launches))
    table.add_row("segment, both", *(TIME.format(launch.segment_s) for launch in profile.launches))
    return table


def links_table(profile: Profile, console: Console) -> Table:
    """Times of exchanges between two engines by size."""
    table = _table(console, "Between two", "exchange", *map(BYTES.format, SHOWN_SIZES_BYTES))
    for kind, operations in profile.links.items():
        for operation, link in operations.items():
            table.add_row(f"{kind} {operation}", *(TIME.format(link.time_s(size)) for size in SHOWN_SIZES_BYTES))
    return table


def _busy(concurrency: int) -> str:
    return "1 core busy" if concurrency == 1 else f"{concurrency} cores busy"
