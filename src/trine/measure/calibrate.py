"""Calibration: this machine's rates, launch costs and links, measured once in less than a minute and kept.

The rates are taken with one core busy and with all cores busy at once, because cores share memory bandwidth and clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from trine.cost.profile import Launch, Profile, Rates, check_directory, load_profile, save_profile
from trine.measure.launch import measure_launch
from trine.measure.links import measure_process_links, measure_thread_links
from trine.measure.machine import Machine, read_machine
from trine.measure.probe import disturbance, measure_rate

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
RATE_S = 0.35
"""Seconds for one rate; there are ten of them at each concurrency."""

Progress = Callable[[str, float], None]
"""Is told what is measured next and which share of all is done."""


def calibrate(
    directory: Path | None = None,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
    machine: Machine | None = None,
) -> Profile:
    """The profile of this machine: the kept one, or a new one that is then kept in ``directory`` (None: not kept).

    ``fresh`` measures again.  Raises TrineError if the directory cannot be used, before anything is measured;
    EngineFailed if the processes that measure the links fail.
    """
    machine = machine or read_machine()
    if directory is not None:
        kept = load_profile(directory, machine.fingerprint)
        if kept is not None and not fresh:
            return kept
        check_directory(directory)
    profile = measure_profile(machine, progress or _silent)
    if directory is not None:
        save_profile(profile, directory)
    return profile


def measure_profile(machine: Machine, progress: Progress, *, rate_s: float = RATE_S) -> Profile:
    """Measure everything, without looking at what is kept."""
    disturbed = disturbance(machine.num_cores)
    concurrencies = sorted({1, machine.num_cores})
    rates: list[Rates] = []
    launches: list[Launch] = []
    for i, concurrency in enumerate(concurrencies):
        share = 0.6 * i / len(concurrencies)
        busy = "one core" if concurrency == 1 else f"all {concurrency} cores"
        progress(f"arithmetic and memory, {busy} busy", share)
        rates.append(measure_rates(concurrency, rate_s=rate_s))
        progress(f"starting operators, {busy} busy", share + 0.5 / len(concurrencies))
        launches.append(measure_launch(concurrency))
    progress("exchange between threads", 0.6)
    links = {"threads": measure_thread_links()}
    progress("exchange between processes", 0.75)
    links["processes"] = measure_process_links()
    disturbed = max(disturbed, disturbance(machine.num_cores))
    progress("done", 1.0)
    return Profile(
        fingerprint=machine.fingerprint,
        machine=str(machine),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        torch_version=str(torch.__version__),
        num_threads=machine.num_cores,
        rates=tuple(rates),
        launches=tuple(launches),
        links=links,
        disturbance=disturbed,
    )


def measure_rates(concurrency: int, *, rate_s: float = RATE_S) -> Rates:
    """The rates of one core while ``concurrency`` cores do the same work at once."""
    matmul, conv, depthwise = (
        {_name(dtype): measure_rate(kind, dtype, concurrency, max_s=rate_s) for dtype in DTYPES}
        for kind in ("matmul", "conv", "depthwise")
    )
    return Rates(
        concurrency=concurrency,
        matmul_flops_per_s=matmul,
        conv_flops_per_s=conv,
        depthwise_flops_per_s=depthwise,
        stream_bytes_per_s=measure_rate("stream", torch.float32, concurrency, max_s=rate_s),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _silent(what: str, share: float) -> None:
    """Tell nobody."""
