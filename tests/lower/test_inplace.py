"""Operators overwrite their input only where nobody reads it again."""

import torch

from trine.graph.graph import Operator
from trine.lower.inplace import overwriting
from trine.lower.segment import lower
from trine.program.program import Segment

NORM = {"weight": None, "bias": None, "running_mean": "%t1", "running_var": "%t2", "momentum": 0.1, "eps": 1e-5}


def norm(made: str) -> Operator:
    return Operator(f"norm{made}", "trine.batch_norm", {"input": "%t0", **NORM}, (made, None, None))


def relu(of: str, made: str) -> Operator:
    return Operator(f"relu{made}", "aten.relu.default", {"self": f"%{of}"}, (made,))


def add(one: str, other: str, made: str) -> Operator:
    return Operator(f"add{made}", "aten.add.Tensor", {"self": f"%{one}", "other": f"%{other}", "alpha": 1}, (made,))


def segment(*operators: Operator, outputs: tuple[int, ...] = (9,)) -> Segment:
    return Segment((0, 1, 2), outputs, operators)


def test_a_relu_overwrites_what_a_batch_norm_made() -> None:
    assert list(overwriting(segment(norm("t5"), relu("t5", "t9")))) == ["relut9"]


def test_an_input_of_the_segment_is_not_overwritten() -> None:
    assert not overwriting(segment(relu("t0", "t9")))


def test_what_is_read_twice_is_not_overwritten() -> None:
    assert not overwriting(segment(norm("t5"), relu("t5", "t6"), add("t6", "t5", "t9")))


def test_what_leaves_the_segment_is_not_overwritten() -> None:
    assert not overwriting(segment(norm("t5"), relu("t5", "t9"), outputs=(5, 9)))


def test_what_its_maker_keeps_is_not_overwritten() -> None:
    assert list(overwriting(segment(norm("t5"), relu("t5", "t6"), relu("t6", "t9")))) == ["relut6"]


def test_a_sum_that_grows_is_not_made_in_place() -> None:
    code = lower(segment(norm("t5"), add("t5", "t0", "t9")))
    x, mean, var = torch.randn(2, 3, 4, 4), torch.zeros(3), torch.ones(3)
    (got,) = code(x, mean, var)
    assert torch.allclose(got, torch.nn.functional.batch_norm(x, mean, var, training=True) + x)
    small = Segment((0, 1, 2, 3), (9,), (norm("t5"), add("t5", "t3", "t9")))
    assert lower(small)(x, mean, var, torch.randn(2, 2, 3, 4, 4))[0].shape == (2, 2, 3, 4, 4)


def test_gradients_are_the_same() -> None:
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    (got,) = lower(segment(norm("t5"), add("t5", "t0", "t6"), relu("t6", "t9")))(x, mean, var)
    want = (torch.nn.functional.batch_norm(x, mean.clone(), var.clone(), training=True) + x).relu()
    assert torch.equal(got, want)
    grad = torch.randn_like(x)
    assert torch.equal(*(torch.autograd.grad(y, x, grad)[0] for y in (got, want)))
