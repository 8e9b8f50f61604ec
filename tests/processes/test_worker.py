"""What the process of an engine does when its parent is gone."""

import multiprocessing
from pathlib import Path

import pytest

from trine.run import worker

pytestmark = pytest.mark.timeout(120)


def test_an_engine_that_waits_for_work_removes_the_folder_of_a_dead_parent(tmp_path: Path) -> None:
    """The pipe's end is seen before the parent's: nobody else may be left to do it."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "engine0").write_bytes(b"\x80\x04N.")  # a pickled None
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=worker.main, args=(0, str(folder), theirs, None))
    process.start()
    theirs.close()
    mine.recv_bytes()  # it is ready for the first word
    mine.close()
    process.join(60)
    assert process.exitcode == 0
    assert not folder.exists()
