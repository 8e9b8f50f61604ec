"""Memory that is not there: plans that are left out, the answer no, and the nearest that fits."""

import json
from pathlib import Path

import pytest

import trine
from trine.capture.specification import load_model
from trine.cli import main
from trine.cluster.toml import read_cluster
from trine.errors import NothingFits

NET = f"{Path(__file__).parents[1] / 'cli' / 'small.py'}:net"
TEXT = """name = "c"
[[engines]]
name = "e"
kind = "gpu"
count = 2
peak = { float32 = "1 TFLOP/s" }
memory = "%s"
memory_bandwidth = "1 GB/s"
launch = "5 us"
[[tiers]]
name = "all"
size = 2
latency = "5 us"
bandwidth = "10 GB/s"
"""


@pytest.fixture
def cluster(tmp_path: Path):
    """Return a function that writes a cluster of two engines with so much memory each and gives its file."""

    def write(memory: str) -> str:
        file = tmp_path / "cluster.toml"
        file.write_text(TEXT % memory)
        return str(file)

    return write


def test_what_does_not_fit_is_among_the_impossible(cluster, tmp_path: Path):
    file = tmp_path / "plan.json"
    assert main(["plan", NET, "--cluster", cluster("20 KiB"), "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["plans"]
    assert all(row["predicted"]["memory_bytes"] <= 20 * 1024 for row in found["plans"])
    assert "engine 0 needs 26 KiB, and there are 20 KiB" in found["impossible"]["one engine"]


def test_a_plan_by_hand_that_does_not_fit_has_a_nearest(cluster, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", NET, "--cluster", cluster("12 KiB"), "--stages", "2"]) == 1
    out, said = capsys.readouterr()
    assert not out
    assert "needs 24.6 KiB, and there are 12 KiB" in said
    assert "4 micro-batches" in said
    assert "would fit" in said


def test_where_nothing_fits_a_smaller_batch_is_the_nearest(cluster):
    model = load_model(NET, batch=16)
    with pytest.raises(NothingFits, match=r"None of .* and there are 12 KiB. With --batch 8 an engine needs") as caught:
        trine.plan(model, cluster=read_cluster(Path(cluster("12 KiB"))), batch=16)
    assert caught.value.exit_status == 1


def test_a_simulated_plan_that_does_not_fit_is_no(cluster, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", NET, "--cluster", cluster("12 KiB"), "--data", "2"]) == 1
    assert "does not fit in memory: engine 0 needs 14 KiB, and there are 12 KiB" in capsys.readouterr().out
    assert main(["simulate", NET, "--cluster", cluster("20 KiB"), "--data", "2"]) == 0
