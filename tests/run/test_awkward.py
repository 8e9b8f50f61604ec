"""What is awkward is equal to one engine, or refused with a sentence that says what to do."""

import copy
from typing import Any

import pytest
import torch
from tests.run.awkward import (
    BATCH,
    CASES,
    FEATURES,
    Branching,
    LongSkip,
    OwnFunction,
    Said,
    Unused,
    images,
    plain,
    rows,
)
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.errors import BadInput, CannotCut, CaptureFailed
from trine.plan.build import build
from trine.run.job import Job
from trine.run.judge import judge
from trine.run.judge_replicas import judge_replicas
from trine.run.parallelize import parallelize
from trine.run.training import train_step

PAIRS = [(name, number) for name, (_, plans) in CASES.items() for number in range(len(plans))]


def wishes(name: str, number: int) -> dict[str, Any]:
    return CASES[name][1][number]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("name", "number"), PAIRS, ids=[f"{name}: {wishes(name, n)}" for name, n in PAIRS])
def test_it_equals_one_engine(name: str, number: int, training: bool) -> None:
    torch.manual_seed(0)
    job, asked = Job(CASES[name][0](), training, float64=True), wishes(name, number)
    verdict = judge(job, build(job.graph_for(asked.get("micro_batches", 1)), batch=BATCH, **asked), "lockstep", 2)
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def spread(module: nn.Module, x: Tensor, **asked: Any) -> nn.Module:
    """The module under a plan by degrees."""
    graph = capture(make_model(module, x), training=module.training, with_loss=False).graph
    return parallelize(module, build(graph, batch=len(x), **asked), inputs=x)


def test_gradients_add_up_over_several_calls_of_which_the_last_is_smaller() -> None:
    torch.manual_seed(0)
    module, batches = Unused().double(), torch.randn(2 * BATCH + 2, 7, dtype=torch.float64).split(BATCH)
    parallel, found = spread(module, batches[0], data=2), []
    for called in (module, parallel):
        module.zero_grad()
        for batch in batches:
            functional.cross_entropy(called(batch), torch.ones(len(batch), dtype=torch.int64)).backward()
        found.append(gradients(module))
    assert found[0].keys() == found[1].keys()
    assert all(torch.allclose(found[0][name], found[1][name], rtol=1e-12, atol=1e-14) for name in found[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("asked", [{"data": 2}, {"stages": 2}, FEATURES], ids=str)
def test_half_precision_stays_and_is_as_near_as_one_engine(dtype: torch.dtype, asked: dict[str, Any]) -> None:
    """Near: the distance to float64, of results and of gradients."""
    torch.manual_seed(0)
    module, x = LongSkip().to(dtype), images().to(dtype)
    wide = copy.deepcopy(module).double()
    far, wanted = [], []
    for called, given in ((wide, x.double()), (module, x), (spread(module, x, **asked), x)):
        own = wide if called is wide else module
        own.zero_grad()
        result = called(given)
        assert result.dtype == given.dtype
        result.square().sum().backward()
        found = torch.cat(
            [result.detach().double().flatten(), *(g.double().flatten() for g in gradients(own).values())]
        )
        wanted.append(found)
        far.append(float((found - wanted[0]).norm() / wanted[0].norm()))
    assert far[2] <= 4 * far[1] + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("asked", [{"data": 2, "shares": (9, 1)}, FEATURES], ids=str)
def test_classes_in_half_precision(dtype: torch.dtype, asked: dict[str, Any]) -> None:
    """Also on an engine without a row, and with the classes cut."""
    torch.manual_seed(0)
    model = make_model(Unused().to(dtype), rows().to(dtype), torch.tensor([0, 3, 1, 4, 2]), functional.cross_entropy)
    job = Job(model, True)
    plan, plain = build(job.graph(), batch=BATCH, **asked), copy.deepcopy(model.module).double()
    expected = float(functional.cross_entropy(plain(model.inputs.args[0].double()), model.targets).detach())
    with train_step(
        model.module, plan, loss=functional.cross_entropy, optimizer=torch.optim.SGD, inputs=model.inputs.args[0],
        targets=model.targets,
    ) as step:  # fmt: skip
        assert float(step((model.inputs.args[0], model.targets))) == pytest.approx(expected, rel=1e-2)


class Answering(nn.Module):
    """Its result is a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Said:
        x = torch.relu(self.one(x))
        return Said(self.two(x), [x, x.sum(1)])


def test_a_dataclass_comes_back_as_one() -> None:
    torch.manual_seed(0)
    module, x = Answering().double(), torch.randn(BATCH, 7, dtype=torch.float64)
    plain, found = module(x), spread(module, x, data=2)(x)
    assert isinstance(found, Said)
    assert torch.allclose(found.logits, plain.logits, rtol=0, atol=1e-14)
    assert [torch.allclose(a, b, rtol=0, atol=1e-14) for a, b in zip(found.hidden, plain.hidden, strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize(("module", "line"), [(Branching, "if x.sum() > 0"), (OwnFunction, "Cube.apply")])
def test_what_a_graph_cannot_show_is_refused_by_its_line_and_replicas_run_it(
    module: type[nn.Module], line: str
) -> None:
    """In training; where nothing goes back, the custom function is as good as what it calls."""
    torch.manual_seed(0)
    job = Job(plain(module, rows)(), True, float64=True)
    with pytest.raises(CaptureFailed, match="data parallelism") as refused:
        job.graph()
    assert line in str(refused.value)
    assert judge_replicas(job, 2).equal


def test_a_detection_model_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match="cannot be captured whole") as refused:
        load_model("torchvision:ssdlite320_mobilenet_v3_large", Wishes(), 2, meta=True)
    assert "file.py:callable" in str(refused.value)


def test_more_heads_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(CannotCut, match="3"):
        build(Job(CASES["33 units and 3 heads"][0](), True).graph(), tensor=(4,), cuts=("heads",), batch=BATCH)
