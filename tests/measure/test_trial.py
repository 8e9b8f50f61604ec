"""One timed call."""

import resource

import pytest

from trine.measure.trial import _timed


def test_a_call_is_timed_where_switches_of_a_thread_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resource, "RUSAGE_THREAD", raising=False)
    calls = []
    assert _timed(lambda: calls.append(1)) > 0
    assert calls == [1]
