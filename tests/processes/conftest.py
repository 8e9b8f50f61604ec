"""No test of this folder may leave a process, a thread of its own or a folder behind."""

import multiprocessing
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trine.run.processes import OPTIMIZER_IMPORTS


@pytest.fixture(autouse=True, scope="session")
def imported_once() -> None:
    """Whichever test starts the fork server, it imports torch once for all."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["trine.run.worker", *OPTIMIZER_IMPORTS])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail if an engine's process or a folder with its files is left."""
    before = set(Path(tempfile.gettempdir()).glob("trine-*"))
    yield
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    assert not left
    assert not set(Path(tempfile.gettempdir()).glob("trine-*")) - before
