"""Runs of halos that are recomputed: none where exchanges are cheap, long ones where they are dear."""

import pytest
import torch
from msgspec.structs import replace
from tests.simulate.test_simulate import cluster
from torch import nn

from trine.capture.model import make_model
from trine.cost.segments import AnalyticCosts
from trine.plan.build import build, check
from trine.plan.plan import Plan
from trine.planner.halos import best_runs, halo_choices, reaching
from trine.program.place import Placement, place
from trine.run.job import Job
from trine.run.judge import judge
from trine.simulate.simulate import simulate


def made(*, float64: bool = False) -> Job:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for width in (3, 8, 8, 8, 8, 8):
        layers += [nn.Conv2d(width, 8, 3, padding=1), nn.ReLU()]
    return Job(make_model(nn.Sequential(*layers), torch.randn(2, 3, 64, 16)), False, float64=float64)


JOB, WIDE = made(), made(float64=True)
PLAN = build(JOB.graph(), tensor=(2,), cuts=("height",), batch=2)


def placement() -> Placement:
    return place(JOB.graph(), PLAN)


def test_what_reads_beyond_a_tile_are_the_convolutions() -> None:
    names = list(reaching(placement()))
    assert len(names) == 6
    assert all("conv" in name for name in names)


def test_an_exchange_that_costs_nothing_is_kept_and_a_dear_one_is_not() -> None:
    assert best_runs(placement(), 1.0, 0.0) == ()
    operators = JOB.graph().operators
    assert best_runs(placement(), 1.0, 1.0) == ((next(reaching(placement())), operators[-1].name),)


def total(runs: tuple[tuple[str, str], ...]) -> int:
    """Exchanges that runs leave."""
    programs = JOB.compiled(replace(PLAN, recomputed_halos=runs)).programs()
    return sum(t.kind == "exchange" for t in programs[0].transfers.values())


def test_the_dearer_an_exchange_the_fewer_there_are() -> None:
    counts = [total(best_runs(placement(), 1.0, cost)) for cost in (0.0, 0.005, 0.02, 0.05, 0.2, 1.0)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (6, 1)
    assert len(set(counts)) > 2


def time_s(plan: Plan, latency_s: float) -> float:
    programs = JOB.compiled(plan).programs()
    return simulate(programs, AnalyticCosts(cluster(2, 1e9, latency_s))).makespan_s


@pytest.mark.parametrize("latency_s", [1e-6, 1e-3, 1e-2])
def test_what_is_proposed_is_legal_and_equal_and_on_a_slow_link_faster(latency_s: float) -> None:
    programs = JOB.compiled(PLAN).programs()
    trace = simulate(programs, AnalyticCosts(cluster(2, 1e9, latency_s)))
    found = list(halo_choices(PLAN, JOB.graph(), programs, trace))
    for plan in found:
        check(plan, JOB.graph(), 2)
        assert judge(WIDE, plan).equal
    assert found[0].border_first
    if latency_s >= 1e-3:
        assert min(time_s(plan, latency_s) for plan in found) < trace.makespan_s


def test_a_plan_without_halos_or_with_a_choice_is_left_alone() -> None:
    data = build(JOB.graph(), data=2, batch=2)
    for plan in (data, replace(PLAN, border_first=True)):
        programs = JOB.compiled(plan).programs()
        trace = simulate(programs, AnalyticCosts(cluster(2, 1e9)))
        assert not list(halo_choices(plan, JOB.graph(), programs, trace))
