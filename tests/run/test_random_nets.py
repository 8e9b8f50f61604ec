"""No random net is computed wrongly under any random plan: equal to one engine, or refused with a sentence."""

from random import Random
from typing import Any

import pytest
from tests.run.random_nets import convolutional, transformer

from trine.errors import CaptureFailed, TrineError
from trine.plan.build import SPACE, build, cut_sizes
from trine.program.compile import batches
from trine.run.integer import judge_integers
from trine.run.job import Job, reference_steps
from trine.run.judge import Expected, judge

KINDS = {"convolutional": convolutional, "transformer": transformer}
PLANS = 3  # for each net
QUICK, LONG = 4, 250  # nets of each kind


def wishes(draw: Random, sizes: dict[str, int]) -> dict[str, Any]:
    """A random mix of the three kinds of parallelism."""
    cuts = draw.sample([cut for cut in sizes if cut != "batch"], draw.choice([0, 1, 1, 2]) if len(sizes) > 2 else 1)
    degrees = [draw.choice([2, 2, 3]) for _ in cuts]
    found: dict[str, Any] = {"tensor": tuple(degrees), "cuts": tuple(cuts)} if cuts else {}
    if draw.random() < 0.4 or not cuts:
        found["data"] = 2
    if not set(cuts).isdisjoint(SPACE) and draw.random() < 0.4:
        found["halo"] = "recompute"
    if draw.random() < 0.3:
        found["stages"] = draw.choice([2, 3])
    if len(degrees) == 1 and degrees[0] == 3:
        found["shares"] = draw.choice([(3, 2, 1), (1, 5, 1), (1, 1, 4)])
    return found


def check(kind: str, number: int, *, training: bool) -> int:
    """Judge a net under random plans; how many were possible."""
    draw, done = Random(number), 0
    model = KINDS[kind](number)
    job = Job(model, training, float64=True)
    try:
        graph = job.graph()
    except CaptureFailed as error:
        pytest.fail(f"net {number} has no graph: {error}")
    known: Expected | None = None
    for _ in range(PLANS):
        asked = wishes(draw, cut_sizes(graph))
        try:
            plan = build(graph, batch=job.batch, **asked)
        except TrineError:  # refused
            continue
        if known is None:
            rows = batches(job.batch, 1)
            known = Expected(list(reference_steps(job, rows, job.step(plan).weights, 1)), (0.0,))
        verdict = judge(job, plan, "lockstep", 1, known)
        worst = verdict.worst()
        assert verdict.equal, f"{kind} {number} under {asked}: {worst.kind} at {worst.where}: {worst.value:.1e}"
        found = judge_integers(job, plan)
        assert not found.different, f"{kind} {number} under {asked}: {found.different}"
        done += 1
    return done


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_random_nets(kind: str, training: bool) -> None:
    assert sum(check(kind, number, training=training) for number in range(QUICK // 2)) >= QUICK // 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_nets(kind: str) -> None:
    assert sum(check(kind, number, training=number % 4 != 0) for number in range(1000, 1000 + LONG)) >= LONG
