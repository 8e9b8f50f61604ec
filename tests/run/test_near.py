"""In float32, a plan is as near to float64 as one engine; what is wrong in float32 alone is found."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.run.nets import job, plan

from trine.run.collect import Whole
from trine.run.distance import FARTHER, FLOOR, Near, distance, largest, outputs_apart
from trine.run.job import Job, Reference
from trine.run.judge import expected
from trine.run.near import NUM_NUDGED, OneEngine, is_float32, judge_float32, one_engine

PLANS = ("data 3:1", "1f1b", "tiles", "features", "stages x tiles")


@cache
def narrow(model: str, training: bool = True) -> Job:
    wide = job(model, training)
    return Job(wide.model, training, captures=wide.captures)


@cache
def single(model: str, micro_batches: int) -> OneEngine:
    name = {1: "tiles", 2: "stages x tiles", 4: "1f1b"}[micro_batches]
    made = plan(model, name)
    return one_engine(narrow(model), made, expected(job(model), made, 1).steps[0])


@pytest.mark.parametrize("model", ["net", "language"])
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_as_near_as_one_engine(model: str, name: str) -> None:
    made = plan(model, name)
    near = judge_float32(narrow(model), made, "lockstep", single(model, made.micro_batches))
    assert near.enough, near
    assert 0 < near.distance < 1e-3
    assert near.limit == FARTHER * max(near.one_engine) + FLOOR


@pytest.mark.usefixtures("rounded")
@pytest.mark.parametrize(("model", "name"), [("net", "tiles"), ("language", "features"), ("net", "data 3:1")])
def test_what_is_wrong_in_float32_alone_is_found(model: str, name: str) -> None:
    near = judge_float32(narrow(model), plan(model, name), "lockstep", single(model, 1))
    assert not near.enough
    assert len(near.one_engine) == 1 + NUM_NUDGED  # one engine was given every chance
    assert near.distance > near.limit


def test_no_more_runs_than_it_takes() -> None:
    one = replace(single("net", 1), known=[1e-7, 1e-6, 1e-3])
    want = one.want
    outputs = {("0", 0): want.outputs[0][0] * (1 + 3e-4)}
    names = {name: (name,) for name in want.gradients}
    near = one.near(Whole({}, outputs, dict(want.gradients), {}, [0]), names)
    assert near.distance == pytest.approx(3e-4)
    assert near.one_engine == (1e-7, 1e-6, 1e-3)
    assert near.enough


def test_a_nan_is_infinitely_far() -> None:
    """Wherever it stands: among outputs, or in one gradient."""
    want = Reference(
        0.0, [{0: torch.ones(2).double(), 1: torch.ones(3).double()}], {"w": torch.ones(2).double()}, {}, {}
    )
    good = {("0", 0): torch.ones(2), ("1", 0): torch.ones(3)}
    nan = torch.tensor([1.0, float("nan")])
    assert distance(want, good, {"w": torch.ones(2)}) == 0
    assert distance(want, good, {"w": nan}) == float("inf")
    assert distance(want, good | {("0", 0): nan}, {"w": torch.ones(2)}) == float("inf")
    assert not Near(float("inf"), (1e-7,)).enough
    assert largest([0.1, float("nan"), 0.2]) == float("inf")


def test_what_is_missing_is_far() -> None:
    want = Reference(0.0, [{0: torch.ones(2)}, {0: torch.ones(2)}], {"w": torch.ones(2), "v": torch.ones(2)}, {}, {})
    both = {("0", 0): torch.ones(2), ("0", 1): torch.ones(2)}
    assert distance(want, both, {"w": torch.ones(2)}) == pytest.approx(0.5**0.5)
    first = {("0", 0): torch.ones(2)}
    assert distance(want, first, want.gradients) == float("inf")
    assert outputs_apart(want, first)[-1] == ("output 0, micro-batch 1, which is missing", float("inf"))
    assert distance(want, both | {("1", 0): torch.ones(2)}, want.gradients) == float("inf")


def test_other_types_are_not_float32() -> None:
    made = narrow("net")
    assert is_float32(made)
    half = replace(made.model, module=torch.nn.Linear(2, 2).bfloat16())
    assert not is_float32(Job(half, True))
