"""Parallel = single, on small models: outputs, loss, buffers, each gradient by name, weights after steps."""

from dataclasses import replace
from functools import cache

import msgspec
import pytest
import torch
from tests.run.nets import NAMES, PLANS, job, plan
from torch import Tensor

from trine.capture.mode import in_mode
from trine.graph.part import Box
from trine.plan.plan import FEATURES
from trine.run.judge import Expected, expected, judge
from trine.run.lockstep import Lockstep
from trine.run.runner import runner

STEPS = 2
HARD = [(model, name) for model, name in NAMES if model != "whole"]


@cache
def reference(model: str, micro_batches: int) -> Expected:
    name = next(n for n, wishes in PLANS[model].items() if wishes.get("micro_batches", 1) == micro_batches)
    return expected(job(model), plan(model, name), STEPS)


@pytest.mark.parametrize("on", ["lockstep", "threads"])
@pytest.mark.parametrize(("model", "name"), HARD, ids=[" ".join(pair) for pair in HARD])
def test_training_equals_one_engine(model: str, name: str, on: str) -> None:
    made = plan(model, name)
    verdict = judge(job(model), made, on, STEPS, reference(model, made.micro_batches))
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"
    assert {d.kind for d in verdict.differences} >= {"outputs", "loss", "gradients", "weights"}
    for share in verdict.shares:
        # a graph as small as this has more of its work in what is not cut by features: gates, masks, norms
        assert share.of_having >= (0.9 if share.cut in FEATURES else 0.95), share.whole


@pytest.mark.parametrize("on", ["lockstep", "threads"])
def test_training_equals_one_engine_where_stages_are_neighbours(on: str) -> None:
    made = msgspec.structs.replace(plan("net", "stages x tiles"), stages_at=1)
    assert [p.stage for p in job("net").compiled(made).programs()] == [0, 1, 0, 1]
    verdict = judge(job("net"), made, on, STEPS, reference("net", made.micro_batches))
    assert verdict.equal, verdict.worst()


@pytest.mark.parametrize("name", PLANS["whole"])
def test_whole_numbers_are_equal_bit_for_bit(name: str) -> None:
    """One forward pass of small whole numbers: no rounding, so no excuse."""
    made = job("whole", training=False)
    found = plan("whole", name, training=False)
    engines = runner("lockstep", made.compiled(found).programs(), made.state(), None)
    results = engines.step(made.step(found)).results
    rows = iter(sorted(results))
    with torch.no_grad(), in_mode(made.module, False):
        want = made.module(*made.inputs.args)
    got = torch.cat([results[key] for key in rows])
    assert torch.equal(got, want)
    assert torch.equal(want, want.round())


@pytest.mark.parametrize("name", [n for n in PLANS["whole"] if n != "one engine"])
def test_gradients_of_whole_numbers_are_equal_bit_for_bit(name: str) -> None:
    made, found = job("whole"), plan("whole", name)
    engines = runner("lockstep", made.compiled(found).programs(), made.state(), None)
    got = engines.step(made.step(found)).gradients
    one = plan("whole", "one engine")
    want = runner("lockstep", made.compiled(one).programs(), made.state(), None).step(made.step(one)).gradients
    assert got.keys() == want.keys()
    assert all(torch.equal(got[key], want[key]) for key in want)


@pytest.mark.parametrize(("model", "name"), HARD, ids=[" ".join(pair) for pair in HARD])
def test_replicas_hold_the_same_bits(model: str, name: str) -> None:
    """Engines with the same part of a weight or buffer have not drifted apart by a bit after a step."""
    made, found = job(model), plan(model, name)
    engines = Lockstep(made.compiled(found).programs(), made.state(), made.optimizer)
    engines.step(made.step(found), tensors=False)
    seen: dict[tuple[str, Box], Tensor] = {}
    for engine in engines.engines:
        for tile, parameter in {**engine.program.parameters, **engine.program.stored}.items():
            mine = engine.state[parameter]
            assert torch.equal(seen.setdefault((parameter, engine.program.tiles[tile].box), mine), mine), parameter


@pytest.mark.parametrize(("model", "weight"), [("net", "wide.3.down.bias"), ("language", "blocks.1.out.weight")])
def test_the_judge_finds_a_wrong_gradient_by_name(model: str, weight: str) -> None:
    known = reference(model, 1)
    norm = float(torch.stack([g.norm() for g in known.steps[0].gradients.values()]).norm())
    wrong = dict(known.steps[0].gradients)
    wrong[weight] = wrong[weight].clone()
    wrong[weight].view(-1)[0] += 2e-9 * norm
    verdict = judge(
        job(model),
        plan(model, "tiles"),
        "lockstep",
        1,
        replace(known, steps=[replace(known.steps[0], gradients=wrong)]),
    )
    assert [(d.kind, d.where) for d in verdict.differences if not d.equal] == [("gradients", weight)]
