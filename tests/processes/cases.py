"""Small models with their plans, as the tests of this folder run them.  Importable in other processes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from trine.capture.export import Captured, capture
from trine.capture.model import Model, make_model
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program
from trine.run.collect import Whole
from trine.run.engine import Step
from trine.run.optimizer import OptimizerSpec
from trine.run.weights import Weighing

BATCH = 8


def perceptron() -> Model:
    """Linear, relu, linear, cross-entropy, in float64."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).double()
    inputs, targets = torch.randn(BATCH, 6, dtype=torch.float64), torch.randint(0, 5, (BATCH,))
    return make_model(module, inputs, targets, nn.functional.cross_entropy, name="perceptron")


def whole_numbers() -> Model:
    """The same with a sum as its loss: with whole numbers in it, every sum is exact in any order."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    for parameter in module.parameters():
        parameter.data = torch.randint(-1, 2, parameter.shape).double()
    inputs, targets = torch.randint(-1, 2, (BATCH, 4)).double(), torch.randint(-1, 2, (BATCH, 3)).double()
    return make_model(module, inputs, targets, lambda output, factor: (output * factor).sum(), name="whole_numbers")


def convolutional() -> Model:
    """Convolutions of which height is cut, with a halo, and a batch norm over the cut."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1, stride=2))
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    inputs, targets = torch.randn(BATCH, 2, 9, 6, dtype=torch.float64), torch.randint(0, 3, (BATCH,))
    return make_model(module, inputs, targets, nn.functional.cross_entropy, name="convolutional")


def tall() -> Model:
    """Enough rows for borders to be small shares of tiles, and several halos of them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for width in (2, 4, 4):
        layers += [nn.Conv2d(width, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]
    module = nn.Sequential(
        *layers, nn.Dropout(0.2), nn.Conv2d(4, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    inputs, targets = torch.randn(BATCH, 2, 36, 6, dtype=torch.float64), torch.randint(0, 3, (BATCH,))
    return make_model(module.double(), inputs, targets, nn.functional.cross_entropy, name="tall")


@dataclass(frozen=True)
class Case:
    """A model under a plan, ready for any runtime."""

    programs: tuple[Program, ...]
    state: dict[str, Tensor]
    steps: tuple[Step, ...]
    optimizer: OptimizerSpec


MODELS: dict[str, Callable[[], Model]] = {m.__name__: m for m in (perceptron, whole_numbers, convolutional, tall)}
PLANS = {
    "data": ("perceptron", {"data": 2}),
    "gpipe": ("perceptron", {"stages": 2, "micro_batches": 4, "schedule": "gpipe"}),
    "1f1b": ("perceptron", {"stages": 2, "micro_batches": 4, "schedule": "1f1b"}),
    "three replicas": ("perceptron", {"data": 3}),
    "three tiles": ("convolutional", {"tensor": (3,), "cuts": ("height",)}),
    "borders first": ("tall", {"tensor": (2,), "cuts": ("height",), "halo": "overlap"}),
    "whole numbers, data": ("whole_numbers", {"data": 2, "shares": (3, 1)}),
    "whole numbers, three stages": ("whole_numbers", {"stages": 3, "micro_batches": 5}),
}


def case(plan: str, num_steps: int = 3) -> Case:
    """The case of a plan by name."""
    name, wishes = PLANS[plan]
    model = MODELS[name]()

    @cache
    def captured(rows: int) -> Captured:
        return capture(model, training=True, with_loss=True, batch=rows)

    rows = -(-BATCH // wishes.get("micro_batches", 1))
    compiled = Compiled(lambda n: captured(n).graph, build(captured(rows).graph, batch=BATCH, **wishes), BATCH)
    inputs, whole = captured(BATCH).flatten(model.inputs), captured(BATCH)
    weights = Weighing(lambda n: captured(n).graph, compiled.rows, whole.constants).weights(inputs)
    steps = tuple(Step(inputs, whole.graph.batch_dims, weights, number) for number in range(num_steps))
    optimizer = OptimizerSpec("sgd", lr=1.0) if name == "whole_numbers" else OptimizerSpec("sgd", lr=0.1, momentum=0.9)
    return Case(compiled.programs(), whole.state(model.module), steps, optimizer)


def differences(a: Whole, b: Whole) -> dict[str, float]:
    """The largest differences of losses, results, gradients and state, by name; those that are 0 are left out."""
    found = {}
    for what in ("losses", "results", "gradients", "state"):
        ours, theirs = getattr(a, what), getattr(b, what)
        assert ours.keys() == theirs.keys(), f"{what}: {ours.keys()} and {theirs.keys()}"
        for key in ours:
            assert ours[key].isfinite().all(), f"{what} {key} is not finite"
            found[f"{what} {key}"] = float((ours[key].double() - theirs[key].double()).abs().max())
    return {key: value for key, value in found.items() if value}
