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


def test_many_engines_are_searched_by_estimates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answers = []
    for number in range(2):
        file = tmp_path / f"{number}.json"
        assert main(["plan", NET, "--cluster", "a100-80gbx8", "--batch", "16", "--json", str(file)]) == 0
        answers.append(file.read_bytes())
    assert answers[0] == answers[1]
    told = capsys.readouterr().out
    assert "combinations estimated, the best" in told
    assert any(line.startswith("one engine") for line in told.splitlines())


def test_what_would_be_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--what-if", "link=2x", "--what-if", "compute=0.5"]
    assert main(["plan", NET, "--cluster", "a100-80gbx8", "--batch", "16", *changes]) == 0
    told = capsys.readouterr().out
    assert "With link 2x: " in told
    assert "With compute 0.5x: " in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--what-if", "link=2x"], "for this machine"),
        (["--cluster", "l4x2", "--data", "2", "--what-if", "link=2x"], "by hand"),
        (["--cluster", "l4x2", "--what-if", "clock=2x"], "link, compute, bandwidth, memory"),
        (["--cluster", "l4x2", "--what-if", "link=0x"], "link=2x"),
    ],
)
def test_a_change_that_cannot_be_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", NET, "--batch", "8", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_plan_needs_a_cluster_of_its_size() -> None:
    with pytest.raises(BadInput, match="4 engines of cluster 'l4x2'"):
        costs_for(4, "l4x2", None)
