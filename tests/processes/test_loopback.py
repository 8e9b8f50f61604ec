"""Bytes on the wire are those that were predicted, in a network apart of which nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path

import pytest
from bench.lab.loopback import Row, apart, loopback_bytes, refusal

REPOSITORY = Path(__file__).parents[2]
RUN_S, END_S = 150.0, 10.0


def processes_in(network: str) -> Iterator[int]:
    """Processes in a network namespace; without any it is gone."""
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if os.readlink(path) == network:
                yield int(path.parts[2])
        except OSError:
            continue  # it has ended


@pytest.fixture
def needs_a_network() -> None:
    if reason := refusal():
        pytest.skip(reason)


@pytest.mark.processes
@pytest.mark.timeout(RUN_S + 60)
@pytest.mark.usefixtures("needs_a_network")
def test_a_step_over_10_megabytes_agrees_with_the_wire() -> None:
    """Data 2 of ResNet-18: its gradients are 94 MB on the wire; in inference nothing is sent."""
    which = 'readlink /proc/self/ns/net; exec "$@" --inside --model resnet18 --plan "data 2" --steps 1'
    lab = (sys.executable, "-m", "bench.lab.loopback")
    process = subprocess.Popen(
        [*apart(), "sh", "-c", which, "sh", *lab], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=RUN_S)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # the engines end with it
            process.communicate()
    network, _, *rows = out.splitlines()
    assert process.returncode == 0, out + err
    predicted, counted, wire, ratio = map(float, rows[0].split()[-4:])
    assert 50.0 < predicted == counted < wire
    assert 1.0 < ratio < 1.02
    assert rows[1].split()[-4:] == ["0.000", "0.000", "0.000", "–"]
    assert network.startswith("net:[")
    assert network != os.readlink("/proc/self/ns/net")
    for pid in processes_in(network):
        connection.wait([os.pidfd_open(pid)], END_S)
    assert not list(processes_in(network))


@pytest.mark.parametrize(
    ("predicted", "counted", "wire", "agrees"),
    [
        (20e6, 20e6, 21.9e6, True),
        (20e6, 20e6, 22.1e6, False),
        (20e6, 20e6, 17.9e6, False),
        (20e6, 21e6, 20e6, False),  # what is predicted is what is counted, to the byte
        (1e6, 1e6, 1.5e6, True),
        (1e6, 1e6, 11e6, False),
        (0, 0, 0, True),
        (0, 0, 11e6, False),
    ],
)
def test_what_agrees(predicted: float, counted: float, wire: float, agrees: bool) -> None:
    assert Row("model", "plan", predicted, counted, wire).agrees == agrees


def test_the_counter_counts_up() -> None:
    assert 0 <= loopback_bytes() <= loopback_bytes()


def test_a_refusal_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    false = tmp_path / "unshare"
    false.write_text("#!/bin/sh\necho unshare failed: not permitted >&2\nexit 1\n", encoding="ascii")
    false.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert "not permitted" in refusal()
    assert "root" in refusal()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert "unshare" in refusal()
