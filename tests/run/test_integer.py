"""Pieces equal the whole on whole numbers, bit for bit; a footprint or local form that is off by one is found."""

import pytest
from tests.run.nets import job, plan

from trine.graph.part import Part, merge
from trine.operators.relation import Window
from trine.operators.window import Padding
from trine.run.integer import judge_integers

KINDS = ("data 3:1", "tiles 3:2:1", "tiles 2 x 2", "features 3:2:1", "stages x tiles")


@pytest.mark.parametrize("model", ["net", "dense", "whole"])
@pytest.mark.parametrize("name", KINDS)
def test_every_exact_operator_is_equal(model: str, name: str) -> None:
    found = judge_integers(job(model), plan(model, name))
    assert not found.different
    assert len(found.equal) >= 10
    if model == "net":
        assert any(name.endswith("batch_norm_apply") for name in found.rounding)


def test_language_is_equal() -> None:
    found = judge_integers(job("language"), plan("language", "tiles 3:2:1"))
    assert not found.different
    assert {name.rpartition(": ")[2] for name in found.equal} >= {"embedding", "linear", "add"}


def test_a_footprint_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Window.needs

    def wrong(self: Window, part: Part) -> Part:
        needs = right(self, part)
        return merge((low + (low > 0 and self.kernel > 1), high) for low, high in needs)

    monkeypatch.setattr(Window, "needs", wrong)
    different = judge_integers(job("whole"), plan("whole", "tiles")).different
    assert any("conv2d" in name for name in different)


def test_a_wrong_padding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Padding.as_pad

    def wrong(self: Padding, num_after: int = 0) -> list[int]:
        pad = right(self, num_after)
        return [pad[i + 1 - 2 * (i % 2)] for i in range(len(pad))]  # before and behind swapped

    monkeypatch.setattr(Padding, "as_pad", wrong)
    assert any("conv2d" in name for name in judge_integers(job("net"), plan("net", "tiles")).different)
