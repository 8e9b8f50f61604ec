"""Plans by hand and by search: how many engines there may be, and what those that are idle cost."""

from pathlib import Path

import msgspec
import pytest
from tests.simulate.small import programs_of

from trine.cli import main
from trine.cost.segments import AnalyticCosts
from trine.errors import BadInput
from trine.measure.machine import read_machine
from trine.report.plan import costs_for

NET = f"{Path(__file__).parents[1] / 'cli' / 'small.py'}:net"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores that nobody calibrated."""
    machine = msgspec.structs.replace(read_machine(), num_cores=8)
    monkeypatch.setattr("trine.report.plan.read_machine", lambda: machine)


@pytest.mark.parametrize("cluster", ["raspberry-pi-5", None], ids=["board", "cores"])
def test_idle_engines_take_no_bandwidth(cluster: str | None, eight_cores: None) -> None:
    program = programs_of()[0]
    basis = costs_for(None, cluster, None)
    times = []
    for n in range(1, basis.cluster.num_engines + 1):
        costs = basis.costs_of(n, "")
        assert isinstance(costs, AnalyticCosts)
        assert costs.cluster == basis.cluster.first(n)
        times.append(costs.segment_s(program, 0, "forward"))
    assert times == sorted(times)
    assert (times[0] < times[-1]) == (cluster is not None)  # an uncalibrated machine is assumed to feed all its cores


@pytest.mark.parametrize("verb", ["plan", "simulate"])
@pytest.mark.parametrize(
    "words",
    [["--cluster", "a100-80gbx8", "--data", "2"], ["--cluster", "a100-80gbx8", "--data", "8"], ["--data", "8"]],
    ids=["few of many", "all of many", "cores"],
)
def test_a_plan_by_hand_may_have_more_engines_than_the_search(verb: str, words: list[str], eight_cores: None) -> None:
    assert main([verb, NET, "--batch", "8", *words]) == 0


def test_the_search_says_how_many_engines_it_covers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", NET, "--cluster", "a100-80gbx8"]) == 2
    message = capsys.readouterr().err
    assert "search covers 4" in message
    assert "by hand" in message


def test_a_plan_needs_a_cluster_of_its_size() -> None:
    with pytest.raises(BadInput, match="4 engines of cluster 'l4x2'"):
        costs_for(4, "l4x2", None)
