"""The judge counts as the graph counts, and finds plans right that one engine's oddities could make look wrong."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from trine.capture.model import make_model
from trine.plan.build import build
from trine.run.job import Job
from trine.run.judge import Verdict, expected, judge
from trine.run.optimizer import OptimizerSpec

Answer = Callable[["Layers", Tensor], Any]
NUMBER_FIRST: Answer = lambda s, x: (7, s.a(x), None, s.b(x))  # noqa: E731
INPUT_TOO: Answer = lambda s, x: (None, x, s.b(s.a(x)))  # noqa: E731
TWICE: Answer = lambda s, x: (lambda y: {"first": y, "again": y, "other": s.b(y)})(s.a(x))  # noqa: E731


class Layers(nn.Module):
    """Two layers, and an answer made with them."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.a, self.b, self.answer = nn.Linear(6, 6), nn.Linear(6, 6), answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self, x)


class Doubling(nn.Module):
    """Changes its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x.mul_(2))


class Remembering(nn.Module):
    """Writes a buffer that it never reads."""

    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x).relu())
        self.last.copy_(y.detach().mean(0))
        return y


def job_of(module: nn.Module, x: Tensor, target: Tensor | None = None, loss: Any = None) -> Job:
    model = make_model(module, x, target, loss, OptimizerSpec("sgd", lr=0.1))
    return Job(model, training=loss is not None, float64=True)


def verdict(job: Job, **wishes: Any) -> Verdict:
    return judge(job, build(job.graph(), batch=job.batch, **wishes), num_steps=2)


def worst(found: Verdict) -> str:
    return f"{found.worst().kind} at {found.worst().where}"


def test_classes_cut_where_the_target_has_as_many_dimensions() -> None:
    torch.manual_seed(0)
    job = job_of(nn.Linear(8, 5), torch.randn(4, 7, 8), torch.randint(0, 7, (4, 5)), functional.cross_entropy)
    found = verdict(job, tensor=(2,), cuts=("sequence",))
    assert found.equal, worst(found)


@pytest.mark.parametrize("answer", [NUMBER_FIRST, INPUT_TOO, TWICE], ids=["number first", "input too", "twice"])
def test_outputs_that_are_no_tensors_are_counted(answer: Answer) -> None:
    job = job_of(Layers(answer), torch.randn(4, 6))
    found = verdict(job, tensor=(2,))
    assert found.equal, worst(found)


def test_an_output_behind_none_is_compared() -> None:
    job = job_of(Layers(lambda s, x: (None, s.a(x))), torch.randn(4, 6))
    plan = build(job.graph(), data=2, batch=4)
    known = expected(job, plan, 1)
    wrong = replace(known.steps[0], outputs=[{1: known.steps[0].outputs[0][1] + 1}])
    found = judge(job, plan, reference=replace(known, steps=[wrong]))
    assert worst(found) == "outputs at output 1, micro-batch 0"
    assert not found.equal


def test_an_input_that_the_model_changes_is_its_own() -> None:
    x = torch.randn(4, 6)
    before = x.clone()
    job = job_of(Doubling(), x, torch.randn(4, 3), functional.mse_loss)
    found = verdict(job, data=2)
    assert found.equal, worst(found)
    assert torch.equal(job.inputs.args[0], before.double())


@pytest.mark.parametrize("wishes", [{"stages": 2}, {"data": 2}, {"tensor": (2,)}], ids=["stages", "data", "tensor"])
@pytest.mark.parametrize("make", [Remembering, partial(spectral_norm, nn.Linear(6, 3))], ids=["copy", "spectral"])
def test_a_buffer_that_is_only_written_is_told(make: Callable[[], nn.Module], wishes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = make()
    if isinstance(module, nn.Linear):
        module = nn.Sequential(nn.Linear(6, 6), module)
    found = verdict(job_of(module, torch.randn(4, 6), torch.randn(4, 3), functional.mse_loss), **wishes)
    assert found.equal, worst(found)


def test_a_micro_batch_without_any_target_has_no_say() -> None:
    target = torch.tensor([1, -100, -100, -100])
    job = job_of(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3)), torch.randn(4, 6), target, functional.cross_entropy)
    plan = build(job.graph_for(2), stages=2, micro_batches=2, batch=4)
    known = expected(job, plan, 2)
    found = judge(job, plan, num_steps=2, reference=known)
    (whole,) = expected(job, build(job.graph(), batch=4), 1).steps
    assert known.steps[0].loss == pytest.approx(whole.loss, rel=1e-12)
    assert all(torch.allclose(g, known.steps[0].gradients[n]) for n, g in whole.gradients.items())
    assert found.equal, worst(found)
