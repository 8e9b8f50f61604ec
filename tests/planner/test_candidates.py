"""The combinations that are searched on a few engines, and those of them that fit."""

import pytest
import torch
from torch import nn

from trine.capture.model import make_model
from trine.cluster.cluster import Cluster, Engine, Link, Tier
from trine.plan.build import build
from trine.planner.candidates import candidates, degrees, is_pure, with_room
from trine.planner.predict import Prediction, summed
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
    found, died = candidates(job.graph_for, Scenario("training", 4), 2)
    plans = list(found.values())
    assert {kind for kind in ("data", "model", "tensor") if any(is_pure(p, kind) for p in plans)} == {
        "data", "model", "tensor",
    }  # fmt: skip
    assert all(plan.num_engines <= 2 for plan in plans)
    assert len({plan.key for plan in plans}) == len(plans)
    assert not died


def test_one_request_is_not_split_over_replicas_and_the_reason_is_kept() -> None:
    job = small_job(1, training=False)
    plans, died = candidates(job.graph_for, Scenario("device", 1), 2)
    assert not any(is_pure(plan, "data") for plan in plans.values())
    assert any("batch" in why for name, why in died.items() if name.startswith("data 2"))


def test_a_plan_without_room_is_dropped_with_need_and_limit() -> None:
    engine = Engine(
        name="e", kind="gpu", peak_flops_per_s={"float32": 1e9}, memory_bytes=1000, memory_bandwidth_bytes_per_s=1e9
    )
    tier = Tier(name="all", size=2, link=Link(latency_s=0.0, bandwidth_bytes_per_s=1e9))
    cluster = Cluster(name="c", engines=(engine,) * 2, tiers=(tier,))
    job, died = small_job(4, training=True), dict[str, str]()
    whole, halves = build(job.graph()), build(job.graph(), data=2)
    needs = {whole.key: (1001,), halves.key: (1000, 600)}
    predicted = {name: Prediction(1.0, max(each), 0, False, "", each) for name, each in needs.items()}
    assert with_room({"whole": whole, "halves": halves}, predicted, cluster, died) == [halves]
    assert list(died) == ["whole"]
    assert "engine 0 needs 1001 B, and there are 1000 B" in died["whole"]


@pytest.mark.parametrize(
    ("wishes", "said"), [({"data": 2}, "all 4 parameters"), ({"tensor": (2,), "cuts": ("channel",)}, "of 4 parameters")]
)
def test_the_gradients_that_are_summed_are_counted(wishes: dict[str, object], said: str) -> None:
    job = small_job(4, training=True)
    program = job.compiled(build(job.graph(), batch=4, **wishes)).programs()[0]
    assert said in summed(program)
    assert ("all" in summed(program)) == ("data" in wishes)
