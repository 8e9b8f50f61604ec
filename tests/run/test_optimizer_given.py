"""The optimizer that a user gives is the one that steps, is judged and is counted."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from trine.capture.model import OptimizerFactory, make_model, sgd
from trine.errors import BadInput
from trine.measure.operators import optimizer_states
from trine.plan.build import build
from trine.report.fits import needs_bytes
from trine.run.job import Job
from trine.run.judge import expected, judge


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.1)


def plain(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


class Norms(torch.optim.SGD):
    """Stands for an optimizer that looks at whole tensors."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, lr=0.1)


def job(optimizer: OptimizerFactory, *, training: bool = True, float64: bool = True) -> Job:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    model = make_model(net, torch.randn(4, 6), torch.randn(4, 4), nn.functional.mse_loss, optimizer)
    return Job(model, training, float64)


@pytest.mark.parametrize("wishes", [{"data": 2}, {"tensor": (2,), "cuts": ("channel",)}], ids=["data", "channel"])
@pytest.mark.parametrize("optimizer", [adam, plain])
def test_a_plan_steps_with_it(optimizer: OptimizerFactory, wishes: dict[str, object]) -> None:
    """The reference is another one for another optimizer, and the plan follows."""
    now = job(optimizer)
    plan = build(now.graph(), batch=4, **wishes)  # type: ignore[arg-type]
    assert judge(now, plan, num_steps=2).equal
    other = expected(job(sgd), plan, 2)
    assert not judge(now, plan, num_steps=2, reference=other).equal


def test_its_states_are_counted() -> None:
    assert [optimizer_states(o) for o in (plain, sgd, adam)] == [0, 1, 2]
    assert job(adam, training=False).optimizer_states == 0
    needs = [needs_bytes(job(o), build(job(o).graph(), batch=4))[0] for o in (plain, sgd, adam)]
    weights = sum(p.nbytes for p in job(plain).module.parameters())
    assert [b - a for a, b in pairwise(needs)] == [weights, weights]


def test_one_that_looks_at_whole_tensors_is_refused_where_weights_are_cut() -> None:
    now = job(Norms)
    assert judge(now, build(now.graph(), data=2, batch=4), num_steps=2).equal
    with pytest.raises(BadInput, match="Norms"):
        judge(now, build(now.graph(), tensor=(2,), cuts=("channel",), batch=4))
