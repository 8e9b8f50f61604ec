"""Exchange times between threads and between processes."""

import subprocess
import threading

import pytest

from trine.errors import EngineFailed
from trine.measure import links
from trine.measure.links import OPERATIONS, SIZES_BYTES, measure_process_links, measure_thread_links


def test_threads():
    tables = measure_thread_links(max_s=0.01)
    assert set(tables) == set(OPERATIONS)
    for table in tables.values():
        assert table.sizes_bytes == SIZES_BYTES
        assert table.num_ranks == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("timed-")]


@pytest.fixture
def started(monkeypatch):
    """Every process that is started, to see that none is left."""
    processes = []

    class Noted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            processes.append(self)

    monkeypatch.setattr(links.subprocess, "Popen", Noted)
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_processes(started):
    tables = measure_process_links(timeout_s=60)
    assert set(tables) == set(OPERATIONS)
    for table in tables.values():
        assert table.sizes_bytes == SIZES_BYTES
        assert table.time_s(SIZES_BYTES[-1]) > table.time_s(SIZES_BYTES[0])
    assert len(started) == 2
    assert all(process.returncode == 0 for process in started)


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_process_that_fails_is_named_and_none_is_left(started, monkeypatch):
    monkeypatch.setattr(links, "_PROGRAM", "import sys; sys.exit('no network here')")
    with pytest.raises(EngineFailed, match="no network here"):
        measure_process_links(timeout_s=20)
    assert all(process.returncode is not None for process in started)


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_failure_is_told_at_once_though_the_other_would_wait(started, monkeypatch):
    program = "import sys, time\nif sys.argv[4] == '1': sys.exit('rank 1 broke')\ntime.sleep(60)"
    monkeypatch.setattr(links, "_PROGRAM", program)
    with pytest.raises(EngineFailed, match="rank 1 broke"):
        measure_process_links(timeout_s=20)
    assert all(process.returncode is not None for process in started)


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_late_process_is_ended(started, monkeypatch):
    monkeypatch.setattr(links, "_PROGRAM", "import time; time.sleep(60)")
    with pytest.raises(EngineFailed, match="without an end"):
        measure_process_links(timeout_s=0.5)
    assert all(process.returncode is not None for process in started)
