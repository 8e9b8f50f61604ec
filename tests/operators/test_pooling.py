"""The work of a pool."""

from random import Random

import pytest
from tests.laws.draw import ints, sample

from trine.graph.part import full
from trine.operators.family import family_of


def flops(name: str, kernel: list[int], *space: int) -> float:
    case = sample(name, self=ints(2, 3, *space), kernel_size=kernel).case(Random(0))
    outs = [full(case.tensors[case.op.outputs[0]].shape)]
    return family_of(case.op).flops(case.op, [full((2, 3, *space))], outs)


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_a_dimension_of_one_is_no_work(kind: str) -> None:
    line = flops(f"{kind}_pool1d", [3], 9)
    assert line == 2 * 3 * 3 * 3
    assert line == flops(f"{kind}_pool2d", [1, 3], 1, 9) == flops(f"{kind}_pool3d", [1, 1, 3], 1, 1, 9)


@pytest.mark.parametrize("num", [1, 2, 3])
def test_one_number_is_the_window_of_every_dimension(num: int) -> None:
    assert flops(f"avg_pool{num}d", [2], *[4] * num) == flops(f"avg_pool{num}d", [2] * num, *[4] * num)
