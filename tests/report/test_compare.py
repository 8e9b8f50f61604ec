"""The comparison: rows, stamps, proofs and bytes on a small model."""

import json
from datetime import datetime
from math import inf
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import trine
from trine.capture.model import Model
from trine.capture.specification import load_model
from trine.cost.profile import Profile
from trine.errors import BadInput
from trine.planner.queues import second_replica_from
from trine.report.compare import batching, second_replica, write_json
from trine.report.rows import ROWS, Batching, Comparison, Figures, Row
from trine.report.show import Screen, verdict

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "timeline.json"


@pytest.fixture(scope="module")
def result(timeline: Path) -> Comparison:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip
    inputs, targets = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
    return trine.compare(
        net, inputs=inputs, targets=targets, loss=nn.functional.cross_entropy, engines=2, budget_s=45.0,
        scenarios=("training", "device"), batch=None, timeline=timeline,
    )  # fmt: skip


def test_the_timeline_has_each_plan_as_predicted_and_as_measured(result: Comparison, timeline: Path) -> None:
    events = json.loads(timeline.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    planned = [row for row in result.rows if row.plan is not None]
    once = [row for row in planned if row.measured is not None and "measured once" not in row.note]
    assert once
    for row in planned:
        title = f"{row.scenario}, {row.row}: {row.describes}, "
        assert any(name.startswith(f"{title}predicted") for name in names)
        assert (f"{title}measured" in names) == (row in once)


def test_every_row_is_there_once_for_each_scenario(result: Comparison) -> None:
    for scenario in ("training", "on-device inference"):
        assert sorted(r.row for r in result.rows if r.scenario == scenario) == sorted(ROWS)


def test_what_ran_was_predicted_before_and_equals_one_engine(result: Comparison) -> None:
    ran = [row for row in result.rows if row.measured is not None]
    assert len(ran) >= 3
    for row in ran:
        assert row.predicted is not None
        assert datetime.fromisoformat(row.predicted_at) < datetime.fromisoformat(row.measured_at)
        assert row.verified is True
        assert row.measured is not None
        assert row.measured.bytes_sent == row.predicted.bytes_sent


def test_what_ran_has_predicted_and_measured_memory(result: Comparison) -> None:
    known = [row.memory for row in result.rows if row.memory is not None and row.memory.tensors_measured is not None]
    assert known
    for memory in known:
        assert memory.tensors_predicted is not None
        assert memory.tensors_measured is not None
        assert memory.tensors_error == memory.tensors_predicted / memory.tensors_measured - 1
        if memory.resident_measured is not None:
            assert memory.resident_measured > memory.tensors_measured


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


@pytest.fixture
def exported(tmp_path: Path) -> Model:
    """A program that was exported with a batch of 4."""
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    torch.export.save(torch.export.export(net, (torch.randn(4, 6),)), tmp_path / "model.pt2")
    return load_model(str(tmp_path / "model.pt2"), default_batch=8)


def test_an_exported_program_has_its_own_batch_in_every_scenario(
    exported: Model, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = dict.fromkeys(("threads", "processes"), profile.links["processes"])
    known = msgspec.structs.replace(profile, links=links)
    monkeypatch.setattr("trine.report.compare.calibrate", lambda *_, **__: known)
    found = trine.compare(exported, engines=2, budget_s=0.1, measured=False)
    assert {row.scenario for row in found.rows} == {"training", "cloud inference", "on-device inference"}
    for row in found.rows:
        if row.predicted is not None:
            assert row.predicted.throughput_per_s == pytest.approx(4 / row.predicted.time_s)
    assert "exported with a batch of 4" in " ".join(found.notes)
    with pytest.raises(BadInput, match="batch of 8"):
        trine.compare(exported, engines=2, batch=8, measured=False)
    assert [b.batch for b in batching(exported, profile, 2, 0.01, lambda _: None)] == [4]


def test_a_second_replica_makes_two_busy_not_all(profile: Profile) -> None:
    """Four busy halve the rate, so that replicas would never help; two do not."""
    batches = [Batching(1, 0.01, 100.0, 0.02, 200.0)]
    rate = second_replica(batches, profile)
    assert rate is not None
    assert rate == pytest.approx(second_replica_from(0.01, 0.01 * 2**0.5))
    assert rate < 100


@pytest.mark.parametrize(
    ("rate", "said"),
    [(inf, "mean wait never ("), (0.0, "mean wait at any rate ("), (30.0, "from about 30 requests/s on")],
)
def test_when_a_second_replica_helps_is_said(rate: float, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    batches = (Batching(1, 0.01, 100.0, 0.02, 200.0),)
    Screen(True).batching(Comparison("m", 2, "", "", (), batches, rate))
    assert said in " ".join(capsys.readouterr().out.split())


def test_the_verdict_recommends_one_engine_where_no_plan_wins() -> None:
    def row(name: str, time_s: float) -> Row:
        figures = Figures(time_s, 1 / time_s, 0, 0)
        return Row("training", name, None, name, figures, figures, True, "")

    rows = (row("one engine", 1.0), row("PyTorch, all cores", 1.2), row("data", 1.1))
    slow = Comparison("m", 2, "", "", rows)
    assert "Use one engine" in verdict(slow, "training")
    fast = Comparison("m", 2, "", "", (*rows[:2], row("data", 0.5)))
    assert "2.00×" in verdict(fast, "training")
