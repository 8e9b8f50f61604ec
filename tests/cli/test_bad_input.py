"""Whatever is wrong with what was given: one message that says what, the exit status, nothing left running."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trine.cli import main

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
MODEL = f"{HERE / 'small.py'}:"
NET = MODEL + "net"
WITHIN_S = 5.0

Say = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Say:
    """Return a function that runs a command line and gives its exit status and its one message."""

    def run(*words: str) -> tuple[int, str]:
        status = main(list(words))
        message = capsys.readouterr().err.strip()
        assert "Traceback" not in message, message
        return status, message

    return run


@pytest.fixture
def plan(tmp_path: Path, said: Say) -> dict[str, Any]:
    """A plan of the small net, as JSON."""
    file = tmp_path / "plan.json"
    assert said("plan", NET, "--data", "2", "--save-plan", str(file))[0] == 0
    return json.loads(file.read_text())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["verify", "torchvision:resnet81"], ["resnet81", "resnet18"]),
        (["verify", "resnet18"], ["torchvision:resnet18"]),
        (["inspect", "timm:dla34", "--size", "65"], ["(2, 3, 65, 65)", "dla.py", "another size"]),
        (["verify", MODEL + "nett"], ["nearest: net"]),
        (["verify", MODEL + "raises"], ["small.py:", "ValueError: on purpose"]),
        (["verify", MODEL + "broken"], ["RuntimeError", "small.py:", "no way forward"]),
        (["verify", NET, "--set", "widht=3"], ["widht", "Did you mean 'width'?"]),
        (["verify", NET, "--data", "9"], ["batch (size 4) into 9", "Possible degrees: 1, 2, 3, 4"]),
        (["verify", NET, "--tensor", "9", "--cut", "height"], ["height (size 8) into 9", "Possible degrees"]),
        (["verify", NET, "--tensor", "2", "--cut", "hight"], ["hight", "nearest: height"]),
        (["verify", NET, "--stages", "99"], ["99 parts", "Possible degrees"]),
        (["verify", NET, "--stages", "2", "--micro-batches", "9"], ["9 micro-batches", "batch is 4"]),
        (["verify", NET, "--data", "2", "--shares", "3:1:1"], ["3:1:1"]),
        (["verify", NET, "--data", "2", "--batch-norm", "local"], ["local batch norm"]),
        (["verify", NET, "--shares", "3:1"], ["without --data"]),
        (["verify", NET, "--cut", "height"], ["without --tensor"]),
        (["verify", NET, "--cut", "height,batch", "--tensor", "2"], ["--cut batch", "without --data"]),
        (["verify", NET, "--cut", "height,width", "--tensor", "2"], ["2 dimensions", "--tensor 2x2"]),
        (["plan", NET, "--schedule", "gpipe", "--stages", "2"], ["--schedule", "without --stages and --micro-batches"]),
        (["verify", NET, "--data", "3", "--engines", "2"], ["needs 3 engines", "there are 2"]),
        (["verify", NET, "--budget", "3s"], ["does not take --budget"]),
        (["verify", MODEL + "branching", "--tensor", "2"], ["small.py:", "x.mean() > -100", "--data"]),
        (["compare", NET, "--engines", "4096"], ["4096 engines", "cores"]),
        (["compare", NET, "--data", "3", "--engines", "1"], ["needs 3 engines", "there are 1"]),
        (["compare", NET, "--html", "page.html"], ["--html", "--json"]),
        (["compare", NET, "--save-plan", "p.json"], ["does not take --save-plan", "option of plan"]),
        (["compare", NET, "--on", "threads,processes"], ["one runtime at a time"]),
        (["plan", NET, "--engines", "1", "--data", "2"], ["needs 2 engines"]),
        (["plan", NET, "--cluster", "a100-80gbx2", "--stages", "3"], ["needs 3 engines", "there are 2"]),
        (["plan", NET, "--cluster", "a100-80gbx5", "--zero", "1"], ["--zero", "without --data"]),
        (["verify", NET, "--data", "2", "--zero", "2"], ["--zero 2", "0 to 1"]),
        (["plan", NET, "--no-measure"], ["does not take --no-measure", "option of compare"]),
        (["simulate", NET, "--data", "2", "--cluster", "a100-80gx4"], ["a100-80g", "a100-80gb"]),
    ],
)
def test_the_message_says_what_is_possible(words: list[str], expected: list[str], said: Say) -> None:
    status, message = said(*words)
    assert status == 2
    assert [word for word in expected if word not in message] == [], message


def test_an_exported_file_that_is_none(tmp_path: Path, said: Say) -> None:
    file = tmp_path / "model.pt2"
    file.write_bytes(b"\x00" * 100)
    status, message = said("verify", str(file))
    assert (status, "torch.export.save" in message) == (2, True)


def axis(**changes: object) -> dict[str, object]:
    return {"axes": [{"name": "data", "size": 2, "cut": "batch", "shares": [], **changes}]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"axes": "data"}, "$.axes"),
        (axis(size="2"), "$.axes[0].size"),
        (axis(size=-2), "-2 coordinates"),
        (axis(size=0), "0 coordinates"),
        (axis(size=10**9), "Possible degrees: 1, 2, 3, 4"),
        (axis(size=10**30), "Possible degrees: 1, 2, 3, 4"),
        (axis(size=10**9, cut="channel"), "Possible degrees"),
        (axis(shares=[1, -1]), "shares"),
        (axis(shares=[1e308, 1e308]), "shares"),
        (axis(shares=[1] * 100_000), "shares"),
        (axis(name="\u001b[31m"), "\\x1b"),
        (axis(name=""), "name"),
        ({"axes": axis()["axes"] * 1000}, "own"),
        ({"micro_batches": 0}, "0 micro-batches"),
        ({"micro_batches": 10**9}, "Give --micro-batches 1 to 4"),
        ({"batch": -4}, "the batch was -4, is 4"),
        ({"colour": "red"}, "colour"),
        ({"schedule": "zigzag"}, "zigzag"),
        ({"batch_norm": "none"}, "$.batch_norm"),
        ({"stage_starts": ["relu"] * 100_000}, "not their order"),
        ({"stage_starts": ["nowhere"]}, "nowhere"),
        ({"fingerprint": "deadbeef"}, "operators, parameters or their order changed"),
    ],
)  # fmt: skip
def test_a_hostile_plan_is_refused_by_its_place(
    change: dict[str, Any], expected: str, plan: dict[str, Any], tmp_path: Path, said: Say
) -> None:
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(plan | change))
    start = time.monotonic()
    status, message = said("verify", NET, "--plan", str(file))
    assert status == 2
    assert expected in message
    assert len(message) < 1000
    assert time.monotonic() - start < WITHIN_S


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"axes": [{"size": NaN}]}',
        "[" * 1_000_000,
        '{"axes":' + "[" * 100_000,
        "null",
        "\udcff",
        "x" * 17_000_000,
    ],
)
def test_a_file_that_is_no_plan(text: str, tmp_path: Path, said: Say) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    status, message = said("verify", NET, "--plan", str(file))
    assert (status, message.startswith("trine: ")) == (2, True)
    assert len(message) < 1000


def test_a_plan_for_a_changed_model(plan: dict[str, Any], tmp_path: Path, said: Say) -> None:
    status, message = said("verify", NET, "--set", "width=7", "--plan", str(tmp_path / "plan.json"))
    assert (status, "changed" in message) == (2, True)


def test_a_plan_file_runs_no_code(plan: dict[str, Any], tmp_path: Path, said: Say) -> None:
    status, message = said("verify", "--plan", str(tmp_path / "plan.json"))
    assert (status, "runs no code" in message) == (2, True)


def test_a_wrong_unit_in_a_cluster_file(tmp_path: Path, said: Say) -> None:
    file = tmp_path / "cluster.toml"
    engine = '[[engines]]\nname = "e"\nkind = "cpu"\ncount = 2\npeak = { float32 = "1 TFLOP/s" }\nlaunch = "5 us"\n'
    file.write_text(f'name = "c"\n{engine}memory = "80 GB/s"\nmemory_bandwidth = "1 GB/s"\n')
    status, message = said("simulate", NET, "--data", "2", "--cluster", str(file))
    assert status == 2
    assert "memory" in message
    assert "80 GB/s" in message


@pytest.mark.parametrize("verb", ["compare", "engines"])
def test_a_cache_that_cannot_be_written(verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: Say) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    words = ["compare", NET, "--budget", "5s"] if verb == "compare" else ["engines", "--calibrate"]
    status, message = said(*words)
    assert (status, "XDG_CACHE_HOME" in message) == (2, True)


@pytest.mark.parametrize(
    ("verb", "option"), [("verify", "--json"), ("plan", "--save-plan"), ("simulate", "--trace"), ("compare", "--json")]
)
def test_a_file_that_cannot_be_written_is_known_before_the_work(verb: str, option: str, said: Say) -> None:
    target = "/proc/nowhere.json" if Path("/proc").is_dir() else "/nowhere/nowhere.json"
    start = time.monotonic()
    status, message = said(verb, NET, "--data", "2", option, target)
    assert (status, option in message) == (2, True)
    assert time.monotonic() - start < 1


def test_a_model_without_a_graph_is_no_error(said: Say) -> None:
    assert said("verify", MODEL + "branching")[0] == 0


# ---- what happens to a running command


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Return a function that starts a command line in a session of its own; nothing of it is left at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, limit: str = "") -> "subprocess.Popen[str]":
        paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", "import sys; from trine.cli import main; sys.exit(main())", *words]
        shell = ["sh", "-c", f'{limit} exec "$@"', "sh", *command]
        running.append(
            subprocess.Popen(
                shell,
                env=environment,
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        return running[-1]

    yield start
    for process in running:
        left = group(process.pid)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
        assert not left


def group(leader: int) -> list[int]:
    """Processes of a session that still run, without those that end within a moment."""
    for _ in range(20):
        found = subprocess.run(["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True).stdout.split()
        if not found:
            return []
        time.sleep(0.1)
    return [int(pid) for pid in found]


def engines_of(process: "subprocess.Popen[str]") -> list[int]:
    """The two engines of a command, when both are there."""
    while process.poll() is None:
        listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(process.pid)], capture_output=True, text=True)
        found = [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError(process.communicate()[0])


LONG = ("verify", "torchvision:resnet18", "--size", "64", "--batch", "8", "--data", "2")


@pytest.mark.slow
@pytest.mark.processes
def test_an_engine_that_is_killed(started) -> None:
    process = started(*LONG, "--on", "processes")
    victim = engines_of(process)[1]
    time.sleep(3)
    os.kill(victim, signal.SIGKILL)
    start = time.monotonic()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 3, text
    assert "SIGKILL" in text
    assert time.monotonic() - start < WITHIN_S


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("on", ["threads", "processes"])
def test_an_interrupt_during_verify(on: str, started) -> None:
    process = started(*LONG, "--on", on)
    for line in process.stdout:
        if "float64" in line:
            break
    if on == "processes":
        engines_of(process)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "interrupted" in text
    assert "Traceback" not in text
    assert time.monotonic() - start < WITHIN_S


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_interrupt_during_compare_keeps_what_is_finished(started, tmp_path: Path) -> None:
    process = started("compare", NET, "--scenario", "training", "--budget", "60s", "--json", str(tmp_path / "c.json"))
    for line in process.stdout:
        if "measuring 2 of" in line:  # the first row is finished
            break
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "one engine" in text
    assert "Interrupted" in text
    assert "Traceback" not in text
    assert time.monotonic() - start < WITHIN_S
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert any(row["measured"] for row in rows)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_too_little_memory(started) -> None:
    process = started(*LONG[:2], "--batch", "64", "--size", "224", limit="ulimit -v 6000000;")
    text, _ = process.communicate(timeout=100)
    assert process.returncode == 3, text
    assert "needs more memory than it may use" in text
    assert "Traceback" not in text
