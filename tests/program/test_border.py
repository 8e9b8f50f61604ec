"""Borders first: equal, with the same messages, and with less waiting where links are slow."""

from collections import Counter

import pytest
import torch
from msgspec.structs import replace
from tests.run.nets import BATCH, HALOED, job, plan
from tests.simulate.test_simulate import cluster
from torch import nn

from trine.capture.model import make_model
from trine.cost.segments import AnalyticCosts
from trine.errors import BadInput
from trine.graph.part import shape_of
from trine.plan.build import build
from trine.program import border
from trine.program.check import faults
from trine.program.program import Program
from trine.run.job import Job
from trine.run.judge import judge
from trine.simulate.simulate import simulate

WITHOUT = {("whole", "tiles 3:2:1"), ("language", "tiles")}  # where no segment can make a border alone in both modes


def messages(programs: tuple[Program, ...]) -> Counter[tuple[object, ...]]:
    """Who sends what to whom, in a whole step."""
    found: Counter[tuple[object, ...]] = Counter()
    for program in programs:
        for step in program.instructions:
            if step.kind in ("move", "move_back") and program.transfers[step.id].kind != "all_reduce":
                transfer = program.transfers[step.id]
                pieces = transfer.sends if step.kind == "move" else transfer.receives
                found.update(
                    (program.rank, piece.peer, step.kind, transfer.number, step.micro_batch, shape_of(piece.where))
                    for piece in pieces
                )
    return found


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("model", "name"), HALOED, ids=[" ".join(pair) for pair in HALOED])
def test_borders_first_equal_one_engine(
    model: str, name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Also where borders are large, which is not done otherwise."""
    monkeypatch.setattr(border, "LARGEST", 1.0)
    made, usual = job(model, training), plan(model, name, training)
    found = replace(usual, border_first=True)
    programs, before = made.compiled(found).programs(), made.compiled(usual).programs()
    assert not faults(programs)
    assert messages(programs) == messages(before)
    if (model, name) not in WITHOUT:
        assert sum(len(p.segments) for p in programs) > sum(len(p.segments) for p in before)
    verdict = judge(made, found, "lockstep", 2)
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"


def convolutions() -> Job:
    """Whole numbers are exact in it; each tile has 24 rows."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for width in (3, 8, 8, 8):
        layers += [nn.Conv2d(width, 8, 3, padding=1), nn.ReLU()]
    return Job(make_model(nn.Sequential(*layers), torch.randn(2, 3, 48, 48)), False)


def test_halos_are_under_way_while_engines_compute() -> None:
    made = convolutions()
    usual = build(made.graph(), tensor=(2,), cuts=("height",), batch=2)
    early = build(made.graph(), tensor=(2,), cuts=("height",), batch=2, halo="overlap")
    costs = AnalyticCosts(cluster(2, 1e6, 1e-3))
    before = simulate(made.compiled(usual).programs(), costs)
    after = simulate(made.compiled(early).programs(), costs)
    assert sum(after.waiting_s()) < 0.5 * sum(before.waiting_s())
    assert after.makespan_s < before.makespan_s
    assert after.bytes_sent() == before.bytes_sent()
    assert "borders first" in early.describe()


def test_the_border_is_sent_before_the_rest_is_made() -> None:
    made = convolutions()
    program = made.compiled(build(made.graph(), tensor=(2,), cuts=("height",), batch=2, halo="overlap")).program(0)
    steps = [(s.kind, s.id) for s in program.instructions if s.kind in ("forward", "move")]
    early = [n for n, t in program.transfers.items() if t.target is None]
    assert len(early) == 3
    for number in early:
        at = steps.index(("move", number))
        small, rest = program.segments[steps[at - 1][1]], program.segments[steps[at + 1][1]]
        made_here = [program.tiles[segment.outputs[0]] for segment in (small, rest)]
        assert [tile.local_shape[2] for tile in made_here] == [1, 24]
        assert made_here[0].tensor == made_here[1].tensor


def test_a_large_border_is_not_made_twice() -> None:
    made = convolutions()
    program = made.compiled(build(made.graph(), tensor=(12,), cuts=("height",), batch=2, halo="overlap")).program(3)
    assert all(t.target is not None for t in program.transfers.values())


def test_only_what_has_halos_can_overlap_them() -> None:
    with pytest.raises(BadInput, match="no axis of the plan has any"):
        build(job("net").graph(), data=2, batch=BATCH, halo="overlap")
