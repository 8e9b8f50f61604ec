"""Halos that tiles compute themselves: equal, with nothing exchanged inside a run, and refused where there are none."""

import pytest
import torch
from msgspec.structs import replace
from tests.run.nets import BATCH, HALOED, job, plan
from torch import nn

from trine.capture.model import make_model
from trine.errors import BadInput, UnknownName
from trine.plan.build import build, check
from trine.plan.plan import Plan
from trine.run.integer import judge_integers
from trine.run.job import Job
from trine.run.judge import judge


def recomputed(model: str, name: str, training: bool = True) -> Plan:
    """A plan whose whole model is one run."""
    graph = job(model, training).graph_for(plan(model, name, training).micro_batches)
    return replace(plan(model, name, training), recomputed_halos=((graph.operators[0].name, graph.operators[-1].name),))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("model", "name"), HALOED, ids=[" ".join(pair) for pair in HALOED])
def test_recomputed_halos_equal_one_engine(model: str, name: str, training: bool) -> None:
    found = recomputed(model, name, training)
    verdict = judge(job(model, training), found, "lockstep", 2)
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"
    assert not judge_integers(job(model, training), found).different


def exchanges(found: Plan, made: Job) -> int:
    """Halo exchanges of one engine."""
    return sum(t.kind == "exchange" for t in made.compiled(found).programs()[0].transfers.values())


def convolutions() -> Job:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 4, 5, padding=2), nn.ReLU()]
    layers += [nn.Conv2d(4, 2, 3, padding=1)]
    return Job(make_model(nn.Sequential(*layers), torch.randn(2, 3, 24, 24)), False, float64=True)


def test_a_run_exchanges_only_at_its_start() -> None:
    made = convolutions()
    plain = build(made.graph(), tensor=(2,), cuts=("height",), batch=2)
    alone = build(made.graph(), tensor=(2,), cuts=("height",), batch=2, halo="recompute")
    names = [op.name for op in made.graph().operators]
    half = replace(plain, recomputed_halos=((names[0], names[2]), (names[3], names[-1])))
    assert (exchanges(plain, made), exchanges(half, made), exchanges(alone, made)) == (4, 2, 1)
    assert all(judge(made, each).equal for each in (plain, half, alone))
    assert "halos recomputed" in alone.describe()


def test_a_tile_is_as_wide_as_its_readers_need() -> None:
    made = convolutions()
    alone = build(made.graph(), tensor=(2,), cuts=("height",), batch=2, halo="recompute")
    program = made.compiled(alone).programs()[0]
    first = next(op.outputs[0] for op in made.graph().operators)
    rows = {t.box[2] for t in program.tiles.values() if t.tensor == first}
    assert ((0, 12 + 1 + 2 + 1),) in rows  # what it owns, and halos of the pool and of two convolutions


def test_runs_are_checked() -> None:
    made = convolutions()
    found = build(made.graph(), tensor=(2,), cuts=("height",), batch=2)
    names = [op.name for op in made.graph().operators]
    with pytest.raises(UnknownName, match="run of recomputed halos"):
        check(replace(found, recomputed_halos=(("nowhere", names[1]),)), made.graph())
    with pytest.raises(BadInput, match="in order"):
        check(replace(found, recomputed_halos=((names[3], names[1]),)), made.graph())
    with pytest.raises(BadInput, match="no axis of the plan has any"):
        build(job("net").graph(), data=2, batch=BATCH, halo="recompute")
