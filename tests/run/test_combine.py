"""Sums of gradients: shares of them in threads, buckets of them in processes."""

import pytest
import torch
from tests.processes.cases import case, differences

from trine.program.program import Combine
from trine.run.combine import BUCKET_BYTES, buckets, last_backward
from trine.run.lockstep import Lockstep
from trine.run.threads import Threads, add_up


@pytest.mark.parametrize("num_engines", [2, 3, 5])
def test_shares_together_are_the_sum_in_order_of_rank(num_engines: int) -> None:
    shapes = ((3, 4), (), (7,), (1, 0), (2, 2, 2))
    given = [[torch.randn(shape) for shape in shapes] for _ in range(num_engines)]
    num = sum(tensor.numel() for tensor in given[0])
    total = torch.full((num,), float("nan"))
    for place in range(num_engines):
        add_up(given, total, num * place // num_engines, num * (place + 1) // num_engines)
    want = torch.cat([tensor.reshape(-1) for tensor in given[0]])
    for tensors in given[1:]:
        want = want + torch.cat([tensor.reshape(-1) for tensor in tensors])
    assert torch.equal(total, want)


@pytest.mark.parametrize("plan", ["data", "three replicas"])
def test_threads_have_the_same_bits_as_lockstep(plan: str) -> None:
    small = case(plan)
    lockstep = Lockstep(small.programs, small.state, small.optimizer)
    with Threads(small.programs, small.state, small.optimizer) as threads:
        for step in small.steps:
            assert differences(threads.step(step), lockstep.step(step)) == {}


def test_buckets_are_in_the_order_of_the_backward_pass() -> None:
    names = tuple(f"p{i}" for i in range(5))
    sizes = dict(zip(names, (10, BUCKET_BYTES // 2, BUCKET_BYTES // 2 + 1, 3 * BUCKET_BYTES, 4), strict=True))
    found = [bucket.names for bucket in buckets(Combine((0, 1), names), sizes)]
    assert found == [("p4",), ("p3",), ("p2",), ("p1", "p0")]


def test_a_gradient_is_complete_in_its_last_backward_pass() -> None:
    program = case("data").programs[0]
    order = [(i.id, i.micro_batch) for i in program.instructions if i.kind == "backward"]
    found = last_backward(program)
    assert {name for names in found.values() for name in names.values()} == set(program.parameters.values())
    assert all(place in order for place in found)
