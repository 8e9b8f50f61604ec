"""The table of families, and how a rule follows its inputs."""

import pytest
import torch

import trine.operators
from trine.graph.graph import Operator, Tensor
from trine.graph.part import is_partition, span
from trine.lower import targets
from trine.lower.registry import KERNELS
from trine.operators.arguments import SAME
from trine.operators.family import FAMILIES, WHOLE, Cut, Rule, family_of
from trine.operators.relation import Regroup

assert trine.operators
assert targets


def test_every_name_is_an_operator() -> None:
    lost = [name for name in FAMILIES if name not in KERNELS and not hasattr(torch.ops.aten, name)]
    assert not lost


def test_an_operator_that_nobody_described_has_no_rules() -> None:
    op = Operator("op", "aten.svd.default", {"self": "%x"}, ("y",))
    assert family_of(op) is WHOLE
    assert family_of(op).rules(op, {"x": Tensor("x", (3, 3), "float32")}) == ()


def test_a_rule_takes_parts_on_its_multiples_only() -> None:
    rule = Rule("row", 12, (Cut(0, 1, SAME),), multiple=4)
    assert rule.accepts(span(4, 12))
    assert rule.accepts(())
    assert not rule.accepts(span(0, 6))
    assert rule.follow(rule.inputs[0], [span(0, 7), span(7, 12)]) == (span(0, 8), span(8, 12))


@pytest.mark.parametrize("edge", range(13))
def test_following_gives_a_partition(edge: int) -> None:
    rule = Rule("row", 3, (Cut(0, 0, Regroup((12,), 0, (3, 4), 0)),))
    parts = rule.follow(rule.inputs[0], [span(0, edge), span(edge, 12)])
    assert parts is not None
    assert is_partition(parts, 3)


def test_a_cut_that_spreads_over_the_whole_range_is_not_followed() -> None:
    rule = Rule("row", 4, (Cut(0, 0, Regroup((12,), 0, (3, 4), 1)),))
    assert rule.follow(rule.inputs[0], [span(0, 6), span(6, 12)]) is None
