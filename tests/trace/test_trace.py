"""A trace's figures, its JSON, its export and the difference of two."""

import json

import pytest

from trine.errors import BadInput
from trine.trace.difference import by_kind, subtract
from trine.trace.perfetto import chrome_json
from trine.trace.trace import Span, Trace

STAGES = (0, 1)


def trace(scale: float = 1.0, source: str = "predicted") -> Trace:
    spans = (
        Span(0, "forward", 0, 0, 0.0, 4.0 * scale),
        Span(0, "move", 1, 0, 4.0 * scale, 5.0 * scale, bytes=100),
        Span(1, "move", 1, 0, 0.0, 5.0 * scale, wait_s=4.0 * scale),
        Span(1, "forward", 0, 0, 5.0 * scale, 10.0 * scale),
    )
    return Trace(spans, source, STAGES, "two stages")  # type: ignore[arg-type]


def test_figures() -> None:
    found = trace()
    assert found.makespan_s == 10.0
    assert found.busy_s() == (5.0, 6.0)
    assert found.utilisation() == (0.5, 0.6)
    assert found.bubble_share == pytest.approx(0.45)
    assert found.communication_s() == (1.0, 5.0)
    assert found.waiting_s() == (0.0, 4.0)
    assert found.bytes_sent() == (100, 0)
    assert found.slowest_stage == 1
    assert found.by_kind() == {"forward": 9.0, "waiting": 4.0, "move": 2.0}


def test_no_spans_take_no_time() -> None:
    empty = Trace((), "measured", (0,))
    assert empty.makespan_s == 0.0
    assert empty.bubble_share == 1.0


def test_json_and_back() -> None:
    assert Trace.from_json(trace().to_json()) == trace()


def test_two_traces_side_by_side_in_one_file() -> None:
    events = json.loads(chrome_json(trace(), trace(2.0, "measured")))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["two stages predicted", "two stages measured"]
    complete = [e for e in events if e["ph"] == "X" and e["cat"] != "wait"]
    assert [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in complete[:2]] == [
        (0, 0, "forward 0 micro-batch 0", 0.0, 4e6),
        (0, 0, "move 1 micro-batch 0", 4e6, 1e6),
    ]
    assert len(complete) == 8
    assert [e["dur"] for e in events if e.get("cat") == "wait"] == [4e6, 8e6]


def test_subtraction_matches_instructions() -> None:
    differences = subtract(trace(1.5), trace(1.0, "measured"))
    assert [(d.engine, d.kind, d.error_s) for d in differences] == [
        (0, "forward", 2.0),
        (0, "move", 0.5),
        (1, "move", 0.5),
        (1, "forward", 2.5),
    ]
    assert by_kind(differences) == {"forward": (13.5, 9.0), "move": (3.0, 2.0), "waiting": (6.0, 4.0)}


@pytest.mark.parametrize(
    "other",
    [
        Trace(trace().spans[:-1], "measured", STAGES),
        Trace((*trace().spans[:-1], Span(1, "backward", 0, 0, 5.0, 6.0)), "measured", STAGES),
        Trace(trace().spans[:2], "measured", (0,)),
    ],
)
def test_traces_of_different_plans_cannot_be_subtracted(other: Trace) -> None:
    with pytest.raises(BadInput, match="the other trace"):
        subtract(trace(), other)
