"""Memory measured in a fresh process, beside the prediction."""

from typing import Any

import pytest
import torch
from tests.simulate.small import EqualStages
from torch import nn
from torch.nn import functional

from trine.capture.model import Model, make_model, sgd
from trine.cost.profile import ProcessSize
from trine.errors import BadInput
from trine.plan.build import build
from trine.run.job import Job
from trine.run.memory import Usage
from trine.run.usage import usage_of_module, usage_of_processes, usage_of_programs
from trine.simulate.memory import memory, peak_together
from trine.simulate.simulate import simulate

BATCH = 8


@pytest.fixture(scope="module")
def job() -> Job:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(1024, 2000),
    )  # fmt: skip
    inputs, targets = torch.randn(BATCH, 3, 64, 64), torch.randint(0, 2000, (BATCH,))
    return Job(make_model(net, inputs, targets, loss=functional.cross_entropy), training=True)


PLANS: dict[str, dict[str, Any]] = {
    "one engine": {}, "data": {"data": 2}, "stages": {"stages": 2, "micro_batches": 4}, "tensor": {"tensor": (2,)},
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_tensors_are_as_predicted(job: Job, name: str) -> None:
    num = PLANS[name].get("micro_batches", 1)
    plan = build(job.graph_for(num), batch=BATCH, **PLANS[name])
    programs = job.compiled(plan).programs()
    found = usage_of_programs(programs, job, job.step(plan), job.optimizer)
    predicted = peak_together(programs, simulate(programs, EqualStages(1.0, 2.0)))
    assert predicted == pytest.approx(found.tensors, rel=0.12)
    assert found.resident is None or found.resident > found.tensors


@pytest.mark.parametrize("name", ["stages", "tensor"])
def test_tensors_of_processes_are_as_predicted(job: Job, name: str) -> None:
    num = PLANS[name].get("micro_batches", 1)
    plan = build(job.graph_for(num), batch=BATCH, **PLANS[name])
    programs = job.compiled(plan).programs()
    found = usage_of_processes(programs, job, job.step(plan), job.optimizer)
    for program, engine in zip(programs, found, strict=True):
        assert memory(program).total == pytest.approx(engine.tensors, rel=0.12)
        assert engine.resident is None or engine.resident > engine.tensors


def test_the_plain_module_holds_its_weights_and_their_moments(job: Job) -> None:
    found = usage_of_module(job, 1, job.optimizer)
    weights = sum(p.nbytes for p in job.module.parameters())
    assert 3 * weights < found.tensors
    inference = usage_of_module(Job(job.model, training=False), 1, None)
    assert weights < inference.tensors < found.tensors - weights


def test_a_larger_model_makes_a_larger_process() -> None:
    """By at least its weights: 64 MB more."""

    def used(width: int) -> Usage:
        model: Model = make_model(nn.Linear(width, 4096, bias=False), torch.randn(2, width))
        return usage_of_module(Job(model, training=False), 1, None)

    small, large = used(16), used(4096)
    if small.resident is None or large.resident is None:
        pytest.skip("this system does not tell the highest resident size of a process")
    assert 0.95 * 4096 * 4080 * 4 < large.resident - small.resident < 2 * 4096 * 4080 * 4


def test_only_what_comes_and_goes_makes_a_process_grow_by_more_than_itself() -> None:
    size = ProcessSize(base_bytes=100, growth=1.5)
    assert size.resident_bytes(40, resting_bytes=40) == 140
    assert size.resident_bytes(40, resting_bytes=20) == 150
    assert size.resident_bytes(40, resting_bytes=20, own_process=True) is None
    other = ProcessSize(base_bytes=100, growth=1.5, engine_base_bytes=300)
    assert other.resident_bytes(40, resting_bytes=20, own_process=True) == 350


def test_a_model_that_cannot_be_sent_is_bad_input() -> None:
    model = make_model(nn.Linear(2, 2), torch.randn(3, 2), loss=lambda output, targets: output.sum())
    with pytest.raises(BadInput, match="cannot be sent"):
        usage_of_module(Job(model, training=True), 1, sgd)
