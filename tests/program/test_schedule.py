"""A schedule is data: printed, parsed back, complete."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.plan.plan import Schedule
from trine.program.schedule import order, parse, text

SCHEDULES = st.sampled_from(["gpipe", "1f1b"])


@settings(derandomize=True, deadline=None)
@given(SCHEDULES, st.integers(1, 5), st.integers(1, 9), st.booleans(), st.data())
def test_each_micro_batch_goes_forth_once_and_then_back_once(
    schedule: Schedule, stages: int, micro_batches: int, training: bool, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    work = order(schedule, stage, stages, micro_batches, training=training)
    assert parse(text(work)) == work
    assert [m for kind, m in work if kind == "F"] == list(range(micro_batches))
    assert [m for kind, m in work if kind == "B"] == (list(range(micro_batches)) if training else [])
    assert all(work.index(("F", m)) < work.index(("B", m)) for kind, m in work if kind == "B")


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_1f1b_holds_no_more_micro_batches_than_stages_follow(stages: int, num: int, data: st.DataObject) -> None:
    """Narayanan et al. 2019: a stage has at most as many in flight as there are stages from it to the end."""
    stage = data.draw(st.integers(0, stages - 1))
    flying = most = 0
    for kind, _ in order("1f1b", stage, stages, num, training=True):
        flying += 1 if kind == "F" else -1
        most = max(most, flying)
    assert most == min(stages - stage, num)


def test_printed() -> None:
    assert text(order("1f1b", 0, 2, 3, training=True)) == "0F 1F 0B 2F 1B 2B"
    assert text(order("gpipe", 0, 2, 2, training=True)) == "0F 1F 0B 1B"


@pytest.mark.parametrize("word", ["F", "1X", "x1F", "1"])
def test_a_wrong_word_is_named(word: str) -> None:
    with pytest.raises(ValueError, match=f"'{word}'"):
        parse(f"0F {word} 0B")
