"""Every legal combination on a few engines."""

import pytest
import torch
from torch import nn

from trine.capture.model import make_model
from trine.planner.candidates import candidates, degrees, is_pure
from trine.run.job import Job
from trine.scenario.scenario import Scenario


def small_job(batch: int, training: bool) -> Job:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    model = make_model(
        net, torch.randn(batch, 3, 8, 8), torch.randint(0, 5, (batch,)), nn.functional.cross_entropy, name="small"
    )
    return Job(model, training)


@pytest.mark.parametrize("engines", [1, 2, 3, 4])
def test_degrees_multiply_to_at_most_the_engines(engines: int) -> None:
    found = list(degrees(engines))
    assert len(set(found)) == len(found)
    assert all(1 < d * s * t <= engines for d, s, t in found)


def test_each_pure_kind_is_there_and_fits() -> None:
    job = small_job(4, training=True)
    plans, died = candidates(job.graph_for, Scenario("training", 4), 2)
    assert {kind for kind in ("data", "model", "tensor") if any(is_pure(p, kind) for p in plans)} == {
        "data", "model", "tensor",
    }  # fmt: skip
    assert all(plan.num_engines <= 2 for plan in plans)
    assert len({plan.describe() for plan in plans}) == len(plans)
    assert not died


def test_one_request_is_not_split_over_replicas_and_the_reason_is_kept() -> None:
    job = small_job(1, training=False)
    plans, died = candidates(job.graph_for, Scenario("device", 1), 2)
    assert not any(is_pure(plan, "data") for plan in plans)
    assert any("batch" in why for name, why in died.items() if name.startswith("data 2"))
