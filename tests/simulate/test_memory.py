"""Laws of predicted memory; against runs: test_against_run.py and tests/processes/test_usage.py."""

from typing import Any

import pytest
from tests.simulate.small import CLASSES, WIDTH, EqualStages, programs_of

from trine.simulate.memory import memory, peak_together
from trine.simulate.simulate import simulate

PLANS: list[dict[str, Any]] = [
    {}, {"data": 2}, {"stages": 2, "micro_batches": 4}, {"stages": 4, "micro_batches": 4, "schedule": "gpipe"},
    {"data": 2, "stages": 2, "micro_batches": 2},
]  # fmt: skip


@pytest.mark.parametrize("wishes", PLANS, ids=str)
def test_engines_together_are_between_the_fullest_and_the_sum(wishes: dict[str, Any]) -> None:
    programs = programs_of(**wishes)
    each = [memory(program, shared=True).total for program in programs]
    together = peak_together(programs, simulate(programs, EqualStages(1.0, 2.0)))
    assert max(each) <= together <= sum(each)
    assert (together == each[0]) == (len(programs) == 1)


def test_one_copy_of_the_gradients_serves_all_engines_that_share_memory() -> None:
    """With few rows the sum of gradients is the peak: two copies on each engine apart, one in all where shared."""
    programs = programs_of(batch=2, num_layers=8, data=2)
    gradients = memory(programs[0]).gradients
    apart = [memory(program).total for program in programs]
    shared = [memory(program, shared=True).total for program in programs]
    assert apart[0] == apart[1]
    assert apart[0] - shared[0] == gradients
    assert shared[0] > shared[1]


def test_gradients_that_are_added_to_earlier_ones_live_until_the_segment_ends() -> None:
    """Beside the activations a second micro-batch has all of its gradients at once."""
    one, two = programs_of(batch=2, num_layers=8), programs_of(batch=4, num_layers=8, micro_batches=2)
    more = memory(two[0]).total - memory(one[0]).total
    assert memory(one[0]).gradients <= more <= memory(one[0]).gradients + 2 * WIDTH * WIDTH * 4 + 64 * CLASSES
