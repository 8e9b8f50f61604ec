"""`trine verify`: float64 strictly and float32 by distance, in what it returns, prints, writes and ends with."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trine
from trine.cli import main

MODEL = f"{Path(__file__).parents[1] / 'cli' / 'small.py'}:net"


def verified(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[dict]]:
    file = tmp_path / "verdicts.json"
    status = main(["verify", MODEL, "--json", str(file), *words])
    return status, capsys.readouterr().out, json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("scenario", ["training", "cloud"])
def test_both_types_are_judged(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, verdicts = verified(tmp_path, capsys, "--scenario", scenario)
    assert status == 0
    assert text.count("float32: ") == len(verdicts) == 4
    for verdict in verdicts:
        near = verdict["float32"]
        assert verdict["equal"]
        assert near["enough"]
        assert near["distance"] <= near["limit"] == pytest.approx(4 * max(near["one_engine"]) + 1e-6)


@pytest.mark.usefixtures("rounded")
def test_wrong_in_float32_alone_is_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, (verdict,) = verified(tmp_path, capsys, "--tensor", "2", "--cut", "height")
    assert status == 1
    assert "<-- farther" in text
    assert "DIFFERS" in text
    assert "NOT equal" in text
    assert all(d["value"] <= d["limit"] for d in verdict["differences"])  # float64 sees nothing
    assert (verdict["equal"], verdict["float32"]["enough"]) == (False, False)


def test_another_type_is_judged_in_float64_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, (verdict,) = verified(tmp_path, capsys, "--dtype", "bfloat16", "--data", "2")
    assert (status, verdict["float32"]) == (0, None)
    assert "float32: not judged" in text


def test_micro_batches_with_batch_norm_are_held_against_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "one engine that streams the same 2 micro-batches (batch norm takes its statistics from each)"
    status, text, (verdict,) = verified(tmp_path, capsys, "--stages", "2", "--micro-batches", "2")
    assert (status, verdict["against"]) == (0, said)
    assert f"equal to {said}" in text
    _, text, (verdict,) = verified(tmp_path, capsys, "--data", "2")
    assert verdict["against"] == "one engine"
    assert "streams" not in text


def test_in_python() -> None:
    torch.manual_seed(0)
    verdicts = trine.verify(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), inputs=torch.randn(4, 4), training=False
    )
    assert all(verdict.equal and verdict.float32.enough for verdict in verdicts)


@pytest.mark.processes
def test_a_model_without_a_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdicts.json"
    assert main(["verify", MODEL.replace("net", "branching"), "--scenario", "cloud", "--json", str(file)]) == 0
    (verdict,) = json.loads(file.read_text(encoding="utf-8"))
    assert verdict["float32"]["enough"]
