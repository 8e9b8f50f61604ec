"""Predicted against measured step times of ResNet-18 in training: one engine, and two engines in threads.

    python -m bench.predict --size 64 128 --batch 8
    python -m bench.predict --models torchvision:resnet18 timm:convnext_atto

Operators are timed alone first (nothing from a run of the model), then each plan is predicted, then run.  Prints both,
the error, and where it comes from by kind of instruction (predicted / measured, milliseconds of all engines together).
With ``--models`` each model is compared in every scenario, and the errors of times and memory over all rows are shown.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torchvision
from torch.nn import functional

import trine
from trine.capture.export import Captured, capture
from trine.capture.model import Model, make_model, sgd
from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.cli.values import setting
from trine.cost.profile import Profile, cache_directory
from trine.cost.segments import MeasuredCosts
from trine.measure.allocator import keep_memory
from trine.measure.calibrate import measure_profile
from trine.measure.machine import read_machine
from trine.measure.operators import measure_operators, optimizer_name
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program
from trine.report.rows import Row
from trine.run.engine import Step
from trine.run.threads import Threads
from trine.simulate.simulate import simulate
from trine.trace.difference import by_kind, subtract
from trine.trace.trace import Trace

PLANS = {
    "one engine": {},
    "data 2": {"data": 2},
    "height 2": {"tensor": (2,), "cuts": ("height",)},
    "stages 2": {"stages": 2},
}
NUM_WARMUP = 2
LARGE_BYTES = 200e6  # memory of smaller rows is mostly libraries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--operator-s", type=float, default=0.25)
    parser.add_argument("--models", nargs="*", default=[], help="MODEL[,key=value...]")
    parser.add_argument("--budget-s", type=float, default=300.0)
    options = parser.parse_args()
    if options.models:
        over_models(options.models, options.budget_s)
        return
    keep_memory()
    profile = measure_profile(read_machine(), lambda what, share: None, rate_s=0.1)
    errors = []
    for size in options.size:
        torch.manual_seed(0)
        inputs = torch.randn(options.batch, 3, size, size), torch.randint(0, 1000, (options.batch,))
        model = make_model(torchvision.models.resnet18(), *inputs, loss=functional.cross_entropy)
        captured = capture(model, training=True, with_loss=True)
        for name, wishes in PLANS.items():
            plan = build(captured.graph, **wishes)  # type: ignore[arg-type]
            programs = Compiled(lambda rows, c=captured: c.graph, plan, options.batch).programs()  # type: ignore[misc]
            start = time.perf_counter()
            profile = measure_operators(programs, profile, operator_s=options.operator_s, optimizer=sgd)
            took_s = time.perf_counter() - start
            error = row(f"{size} px, {name}", programs, profile, model, captured, options.steps)
            errors.append(abs(error))
            print(f"    operators timed in {took_s:.0f} s", flush=True)
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")


def over_models(models: Sequence[str], budget_s: float) -> None:
    """Compare each model; print its rows' memory, and the errors of all."""
    rows: list[Row] = []
    directory = cache_directory(os.environ, Path.home())
    for text in models:
        spec, *settings = text.split(",")
        model = load_model(spec, Wishes(set=tuple(setting(each) for each in settings)))
        found = trine.compare(model, budget_s=budget_s, directory=directory).rows
        for r in found:
            m = r.memory
            if m is not None and m.tensors_measured is not None:
                sizes = (m.tensors_predicted, m.tensors_measured, m.resident_predicted, m.resident_measured)
                text = ", ".join("-" if n is None else f"{n / 1e6:.0f}" for n in sizes)
                print(f"{spec}, {r.scenario}, {r.row}: {text} MB (tensors, resident: predicted, measured)", flush=True)
        rows += found
    for line in summary(rows):
        print(line)


def summary(rows: Sequence[Row]) -> list[str]:
    """Median and worst error: of the time over all rows, of memory over those above ``LARGE_BYTES``."""
    known = [r.memory for r in rows if r.memory is not None]
    errors = {
        "time": [r.error for r in rows],
        "tensors": [m.tensors_error for m in known if (m.tensors_measured or 0) > LARGE_BYTES],
        "resident": [m.resident_error for m in known if (m.resident_measured or 0) > LARGE_BYTES],
    }
    result = []
    for name, values in errors.items():
        sizes = [abs(value) for value in values if value is not None]
        if sizes:
            result.append(
                f"{name}: {len(sizes)} rows, median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}"
            )
    return result


def row(
    name: str, programs: tuple[Program, ...], profile: Profile, model: Model, captured: Captured, num_steps: int
) -> float:
    """Predict, run, print; the relative error of the predicted step."""
    predicted = simulate(programs, MeasuredCosts(profile, len(programs), optimizer=optimizer_name(sgd)), name)
    traces = run(programs, model, captured, num_steps)
    times = sorted(trace.makespan_s for trace in traces)
    measured_s = statistics.median(times)
    error = predicted.makespan_s / measured_s - 1
    middle = min(traces, key=lambda trace: abs(trace.makespan_s - measured_s))
    parts = {
        k: f"{a * 1e3:.1f}/{b * 1e3:.1f}" for k, (a, b) in by_kind(subtract(predicted, middle)).items() if a + b > 0
    }
    print(
        f"{name}: predicted {predicted.makespan_s * 1e3:.1f} ms, measured {measured_s * 1e3:.1f} ms "
        f"({times[0] * 1e3:.1f} to {times[-1] * 1e3:.1f}), error {error:+.1%}"
    )
    print("    " + ", ".join(f"{kind} {text}" for kind, text in parts.items()))
    return error


def run(programs: tuple[Program, ...], model: Model, captured: Captured, num_steps: int) -> list[Trace]:
    """Measured traces of steps after the warm-up."""
    traces = []
    with Threads(programs, captured.state(model.module), sgd) as threads:
        inputs = captured.flatten(model.inputs)
        for number in range(NUM_WARMUP + num_steps):
            trace = threads.trace(Step(inputs, captured.graph.batch_dims, (1.0,), number=number))
            if number >= NUM_WARMUP:
                traces.append(trace)
    return traces


if __name__ == "__main__":
    main()
