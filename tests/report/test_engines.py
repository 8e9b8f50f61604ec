"""`trine engines`: the tables and the JSON."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from trine.errors import BadInput
from trine.measure.machine import machine_cluster, read_machine
from trine.report.engines import Engines, engines, show, write_json


def printed(found, *, quiet: bool = False, terminal: bool = False) -> str:
    text = io.StringIO()
    show(found, Console(file=text, width=120, force_terminal=terminal, no_color=True), quiet=quiet)
    return text.getvalue()


def test_a_machine_that_was_not_measured(tmp_path):
    found = engines(tmp_path)
    assert found.profile is None
    text = printed(found)
    assert "cores" in text
    assert "estimated" in text
    assert "--calibrate" in text
    assert "--calibrate" not in printed(found, quiet=True)
    assert text.isascii()


def test_json(tmp_path):
    write_json(engines(tmp_path), tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found) == {"machine", "cluster", "profile"}
    assert found["profile"] is None
    with pytest.raises(BadInput, match="could not be written"):
        write_json(engines(tmp_path), tmp_path / "no" / "out.json")


def test_a_machine_that_was_measured(profile):
    machine = read_machine()
    found = Engines(machine=machine, cluster=machine_cluster(machine), profile=profile)
    text = printed(found)
    for words in ("matmul float32", "2 GFLOP/s", "4 cores busy", "processes p2p", "Measured 2026-01-01"):
        assert words in text
    assert "went to other work" not in text
    disturbed = msgspec.structs.replace(profile, disturbance=0.3)
    assert "30% of the cores' time went to other work" in printed(
        msgspec.structs.replace(found, profile=disturbed), quiet=True
    )
