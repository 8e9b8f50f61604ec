"""Every local operator of a small network can be rebuilt from its key, timed once, and is then known."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model, sgd
from trine.cost.keys import distinct_keys, parse
from trine.cost.profile import Profile, Timing
from trine.cost.segments import MeasuredCosts
from trine.measure import trial
from trine.measure.operators import measure_operators, optimizer_name
from trine.measure.rebuild import index_limit, operator_instance
from trine.measure.trial import time_trial
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        return self.head(self.drop(x + self.attention(x, x, x, need_weights=False)[0])).mean(1)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def programs(name: str) -> tuple[Program, ...]:
    torch.manual_seed(0)
    if name == "attention":
        module, inputs = Net(), torch.randint(0, 11, (4, 6))
    else:
        module, inputs = convolutional(), torch.randn(4, 3, 15, 15)
    model = make_model(module, inputs, torch.randint(0, 5, (4,)), loss=functional.cross_entropy)
    graph = capture(model, training=True, with_loss=True).graph
    wishes = {"height": {"tensor": (2,), "cuts": ("height",)}, "data": {"data": 2}}.get(name, {})
    return Compiled(lambda rows: graph, build(graph, **wishes), 4).programs()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["one engine", "height", "data", "attention"])
def test_every_key_can_be_rebuilt(name: str) -> None:
    for key in distinct_keys(programs(name)[0]):
        instance = operator_instance(key)
        instance.touch()
        instance.forward()
        instance.touch_gradient()
        instance.backward()
        wanted = 2 in parse(key)["outputs"]
        assert bool(instance.gradients) == wanted, key
        assert not wanted or instance.leaves


def test_measured_once_and_then_known(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SWEEP_BYTES", 2**20)
    made = programs("height")
    told: list[tuple[str, float]] = []
    found = measure_operators(
        made, profile, operator_s=0.001, optimizer=sgd, progress=lambda what, share: told.append((what, share))
    )
    assert told[-1] == ("done", 1.0)
    links = {**found.links, "threads": found.links["processes"]}
    found = Profile(**{**{name: getattr(found, name) for name in found.__struct_fields__}, "links": links})
    assert MeasuredCosts(found, len(made), optimizer=optimizer_name(sgd)).calibrated(made)
    told.clear()
    again = measure_operators(made, found, optimizer=sgd, progress=lambda what, share: told.append((what, share)))
    assert told == [("done", 1.0)]
    assert again.operators == found.operators


def test_budget_ends_the_measurement(profile: Profile) -> None:
    made = programs("one engine")
    found = measure_operators(made, profile, budget_s=0.0)
    assert found.operators == profile.operators
    assert not MeasuredCosts(found, 1, "processes").calibrated(made)


def test_trial_passes_errors_on() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        time_trial(fail, 2)  # type: ignore[arg-type]


def test_trial_times_both_directions() -> None:
    key = '{"target":"aten.relu.default","args":{"self":"%float32[64,64]*"},"outputs":[2]}'
    found: Timing = time_trial(partial(operator_instance, key), 2, 0.01)
    assert found.concurrency == 2
    assert 0 < found.forward_s < 0.1
    assert 0 < found.backward_s < 0.1
    assert found.saved_bytes == 64 * 64 * 4


@pytest.mark.parametrize(
    ("described", "limit"),
    [
        ({"target": "aten.embedding.default", "args": {"weight": "%float32[7,3]*@", "indices": "%int64[4]"}}, 7),
        ({"target": "trine.cross_entropy", "args": {"input": "%float32[4,9]*", "target": "%int64[4]"}}, 9),
        ({"target": "aten.gather.default", "args": {"self": "%float32[4,6]", "dim": 1, "index": "%int64[4,2]"}}, 6),
    ],
)
def test_integers_are_valid_indices(described: dict[str, object], limit: int) -> None:
    assert index_limit(described) == limit
