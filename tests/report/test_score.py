"""The figures of a group of rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.report.score import Outcome, rank_correlation, score, with_scales

values = st.lists(st.integers(1, 50), min_size=3, max_size=20)


def row(measured: float, predicted: float | None, **more: object) -> Outcome:
    return Outcome(file="f", row=1, group="g", unit="s", measured=measured, predicted=predicted, **more)


def test_errors_are_relative_and_signed():
    found = score([row(1.0, 1.1), row(2.0, 1.8), row(4.0, 4.0)])
    assert found is not None
    assert (found.n, found.mean, found.max, found.bias) == pytest.approx((3, 0.2 / 3, 0.1, 0.0))
    assert found.p90 == pytest.approx(0.1)


def test_rows_that_gave_a_constant_and_rows_without_a_prediction_do_not_count():
    found = score([row(1.0, 1.5, use="scale"), row(1.0, 9.0, use="constants"), row(1.0, None), row(1.0, 1.0)])
    assert found is not None
    assert (found.n, found.mean) == (1, 0.0)
    assert score([row(1.0, None)]) is None


@given(values)
def test_ranks_are_those_of_any_rising_function(left: list[int]):
    risen = rank_correlation(left, [value**3 + 1 for value in left])
    assert risen == (pytest.approx(1.0) if len(set(left)) > 1 else None)
    fallen = rank_correlation(left, [-value for value in left])
    assert fallen == (pytest.approx(-1.0) if len(set(left)) > 1 else None)


def test_equal_values_share_their_rank():
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(
        0.9486832980505138
    )  # R's cor(method="spearman")
    assert rank_correlation([1, 2], [1, 2]) is None


def test_regret_is_what_the_predicted_choice_costs():
    same = {"choice": "one model on 8 GPUs"}
    rows = [
        row(1.0, 1.2, label="a", **same),
        row(1.5, 1.1, label="b", **same),
        row(9.0, 9.0, label="alone", choice="x"),
    ]
    found = score(rows)
    assert found is not None
    assert (found.regret, found.num_choices) == (pytest.approx(0.5), 1)


def test_one_constant_for_a_group_comes_from_the_rows_that_are_marked():
    rows = with_scales([row(2.0, 1.0, use="scale"), row(3.0, 1.0, use="scale"), row(5.0, 2.0), row(1.0, None)])
    assert [each.predicted for each in rows] == [2.5, 2.5, 5.0, None]
    assert [each.scale for each in rows] == [2.5, 2.5, 2.5, None]
    assert with_scales([row(2.0, 1.0)]) == [row(2.0, 1.0)]
