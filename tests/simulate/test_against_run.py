"""Predicted against executed: bytes, order and memory of a small convolutional network on lockstep engines."""

from typing import Any

import pytest
import torch
from tests.simulate.small import EqualStages
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from trine.capture.export import Captured, capture
from trine.capture.model import Model, make_model, sgd
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program
from trine.run.engine import Step
from trine.run.lockstep import Lockstep
from trine.simulate.memory import memory
from trine.simulate.simulate import simulate
from trine.simulate.volume import bytes_sent
from trine.trace.difference import subtract

BATCH = 4


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip
    return make_model(net, torch.randn(BATCH, 3, 31, 31), torch.randint(0, 5, (BATCH,)), loss=functional.cross_entropy)


@pytest.fixture(scope="module")
def captures(model: Model) -> dict[int, Captured]:
    return {rows: capture(model, training=True, with_loss=True, batch=rows) for rows in (1, 2, BATCH)}


PLANS: dict[str, dict[str, Any]] = {
    "one engine": {},
    "data": {"data": 2},
    "data by shares": {"data": 3, "shares": (2, 1, 1)},
    "height": {"tensor": (2,), "cuts": ("height",)},
    "height by shares": {"tensor": (3,), "cuts": ("height",), "shares": (3, 2, 1)},
    "channel": {"tensor": (2,), "cuts": ("channel",)},
    "stages": {"stages": 2, "micro_batches": 4},
    "zero": {"data": 2, "zero": 1},
    "mixed": {"data": 2, "stages": 2, "tensor": (2,), "cuts": ("width",), "micro_batches": 2},
}


def programs(captures: dict[int, Captured], plan: dict[str, Any]) -> tuple[Program, ...]:
    rows = BATCH // plan.get("micro_batches", 1)
    found = build(captures[rows].graph, batch=BATCH, **plan)
    return Compiled(lambda n: captures[n].graph, found, BATCH).programs()


def step(model: Model, captures: dict[int, Captured], num_micro_batches: int) -> Step:
    weights = (1 / num_micro_batches,) * num_micro_batches
    return Step(captures[BATCH].flatten(model.inputs), captures[BATCH].graph.batch_dims, weights)


@pytest.mark.parametrize("name", PLANS)
def test_bytes_and_order(model: Model, captures: dict[int, Captured], name: str) -> None:
    made = programs(captures, PLANS[name])
    engines = Lockstep(made, captures[BATCH].state(model.module), lambda ps: sgd(ps))
    now = step(model, captures, PLANS[name].get("micro_batches", 1))
    whole = engines.step(now, tensors=False)
    measured, predicted = engines.trace(now), simulate(made, EqualStages(1.0, 2.0))
    assert [bytes_sent(program) for program in made] == whole.bytes_sent
    assert measured.bytes_sent() == predicted.bytes_sent()
    differences = subtract(predicted, measured)  # raises unless the order is the same
    assert len(differences) == sum(len(program.instructions) for program in made)
    assert [s.bytes for s in predicted.spans] == [s.bytes for s in measured.spans]


@pytest.mark.parametrize("name", ["one engine", "height"])
def test_peak_of_memory(model: Model, captures: dict[int, Captured], name: str) -> None:
    """The allocator's own events of the thread that runs all engines: their sum, of which the peak is at most the sum
    of the predicted peaks and, since equal engines are in step, not far from it."""
    made = programs(captures, PLANS[name])
    engines = Lockstep(made, captures[BATCH].state(model.module))
    now = step(model, captures, 1)
    engines.step(now, tensors=False)
    for engine in engines.engines:  # what the last step left
        engine.values, engine.grads, engine.tape, engine.gradients = {}, {}, {}, {}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        engines.step(now, tensors=False)
    live = peak = 0
    for event in sorted(found.profiler.kineto_results.events(), key=lambda e: e.start_ns()):  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    estimates = [memory(program, 0.0) for program in made]
    predicted = sum(e.total - e.parameters for e in estimates)
    assert all(e.total <= e.parameters + e.gradients + e.optimizer + e.activations_peak for e in estimates)
    assert predicted == pytest.approx(peak, rel=0.15)
