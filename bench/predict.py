"""Predicted against measured step times of ResNet-18 in training: one engine, and two engines in threads.

    python -m bench.predict --size 64 128 --batch 8

Operators are timed alone first (nothing from a run of the model), then each plan is predicted, then run.  Prints both,
the error, and where it comes from by kind of instruction (predicted / measured, milliseconds of all engines together).
"""

import argparse
import statistics
import time

import torch
import torchvision
from torch.nn import functional

from trine.capture.export import Captured, capture
from trine.capture.model import Model, make_model, sgd
from trine.cost.profile import Profile
from trine.cost.segments import MeasuredCosts
from trine.measure.allocator import keep_memory
from trine.measure.calibrate import measure_profile
from trine.measure.machine import read_machine
from trine.measure.operators import measure_operators, optimizer_name
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program
from trine.run.engine import Step
from trine.run.record import Recorder, measured_trace
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--operator-s", type=float, default=0.25)
    options = parser.parse_args()
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
        recorders = [Recorder(engine) for engine in threads.engines]
        for engine, recorder in zip(threads.engines, recorders, strict=True):
            engine.recorder = recorder
        inputs = captured.flatten(model.inputs)
        for number in range(NUM_WARMUP + num_steps):
            for recorder in recorders:
                recorder.clear()
            threads.step(Step(inputs, captured.graph.batch_dims, (1.0,), number=number), tensors=False)
            if number >= NUM_WARMUP:
                traces.append(measured_trace(recorders))
    return traces


if __name__ == "__main__":
    main()
