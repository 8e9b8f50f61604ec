"""The comparison: rows, stamps, proofs and bytes on a small model."""

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import trine
from trine.report.compare import write_json
from trine.report.rows import ROWS, Comparison, Figures, Row
from trine.report.show import verdict

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def result() -> Comparison:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip
    inputs, targets = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
    return trine.compare(
        net, inputs=inputs, targets=targets, loss=nn.functional.cross_entropy, engines=2, budget_s=45.0,
        scenarios=("training", "device"), batch=None,
    )  # fmt: skip


def test_every_row_is_there_once_for_each_scenario(result: Comparison) -> None:
    for scenario in ("training", "on-device inference"):
        assert sorted(r.row for r in result.rows if r.scenario == scenario) == sorted(ROWS)


def test_what_ran_was_predicted_before_and_equals_one_engine(result: Comparison) -> None:
    ran = [row for row in result.rows if row.measured is not None]
    assert len(ran) >= 3
    for row in ran:
        assert row.predicted is not None
        assert datetime.fromisoformat(row.predicted_at) < datetime.now().astimezone()
        assert row.verified is True
        assert row.measured is not None
        assert row.measured.bytes_sent == row.predicted.bytes_sent


def test_a_row_that_is_not_possible_says_why(result: Comparison) -> None:
    row = next(r for r in result.rows if r.row == "data" and r.scenario == "on-device inference")
    assert row.predicted is None
    assert "One request cannot be split" in row.reason


def test_the_json_has_the_promised_keys(result: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    write_json(path, result)
    found = json.loads(path.read_text())
    assert {"model", "engines", "rows"} <= set(found)
    for row in found["rows"]:
        assert {"scenario", "row", "plan", "predicted", "measured", "verified", "reason"} <= set(row)
        for figures in (row["predicted"], row["measured"]):
            if figures is not None:
                assert {"time_s", "throughput_per_s", "memory_bytes", "bytes_sent"} == set(figures)
    again = msgspec.json.decode(path.read_bytes(), type=Comparison)
    assert msgspec.json.encode(again) == msgspec.json.encode(result)


def test_the_verdict_recommends_one_engine_where_no_plan_wins() -> None:
    def row(name: str, time_s: float) -> Row:
        figures = Figures(time_s, 1 / time_s, 0, 0)
        return Row("training", name, None, name, figures, figures, True, "")

    rows = (row("one engine", 1.0), row("PyTorch, all cores", 1.2), row("data", 1.1))
    slow = Comparison("m", 2, "", "", rows)
    assert "Use one engine" in verdict(slow, "training")
    fast = Comparison("m", 2, "", "", (*rows[:2], row("data", 0.5)))
    assert "2.00×" in verdict(fast, "training")
