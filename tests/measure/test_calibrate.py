"""Calibration: what is measured, kept and measured again."""

import msgspec
import pytest

from trine.cost.profile import Profile, load_profile
from trine.errors import TrineError
from trine.measure import calibrate as module
from trine.measure.calibrate import calibrate, measure_profile
from trine.measure.launch import measure_launch
from trine.measure.machine import machine_cluster, read_machine


def test_everything_is_measured(monkeypatch, profile):
    monkeypatch.setattr(module, "measure_process_links", lambda: profile.links["processes"])  # test_links.py has it
    machine = read_machine()
    told = []
    profile = measure_profile(machine, lambda what, share: told.append((what, share)), rate_s=0.01)
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert told[-1][1] == 1.0
    assert [rates.concurrency for rates in profile.rates] == sorted({1, machine.num_cores})
    assert set(profile.links) == {"threads", "processes"}
    for work in ("matmul", "conv", "depthwise"):
        for dtype in ("float32", "float64", "bfloat16"):
            assert profile.rate(work, dtype, machine.num_cores) > 0
    assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile
    c = machine_cluster(machine, profile)
    assert c.engines[0].peak("float32") == profile.rate("matmul", "float32", machine.num_cores)


def test_launch_costs():
    launch = measure_launch(max_s=0.05)
    assert 0 < launch.forward_s < 1e-3
    assert launch.backward_s >= 0
    assert launch.segment_s >= 0


@pytest.fixture
def quick(monkeypatch, profile):
    """Calibration that measures nothing and counts how often it is asked to."""
    count = []

    def measure(machine, progress):
        count.append(1)
        return msgspec.structs.replace(profile, fingerprint=machine.fingerprint, date=str(len(count)))

    monkeypatch.setattr(module, "measure_profile", measure)
    return count


def test_measured_once_and_kept(quick, tmp_path):
    first = calibrate(tmp_path)
    assert calibrate(tmp_path) == first
    assert len(quick) == 1
    assert load_profile(tmp_path, read_machine().fingerprint) == first


def test_fresh_measures_again_and_replaces(quick, tmp_path):
    calibrate(tmp_path)
    again = calibrate(tmp_path, fresh=True)
    assert len(quick) == 2
    assert calibrate(tmp_path) == again


def test_without_a_directory_nothing_is_kept(quick):
    calibrate()
    calibrate()
    assert len(quick) == 2


def test_a_directory_that_cannot_be_used_is_told_before_measuring(quick, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrineError, match="XDG_CACHE_HOME"):
        calibrate(tmp_path / "file" / "trine")
    assert quick == []
