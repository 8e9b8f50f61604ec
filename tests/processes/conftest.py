"""No test of this folder may leave a process, a thread of its own or a folder behind."""

import multiprocessing
import tempfile
from collections.abc import Iterator

import pytest

from trine.run.processes import OPTIMIZER_IMPORTS


@pytest.fixture(autouse=True, scope="session")
def imported_once() -> None:
    """Whichever test starts the fork server, it imports torch once for all."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["trine.run.worker", *OPTIMIZER_IMPORTS])


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if an engine's process or a folder with its files is left; others may use the system's folder meanwhile."""
    folder = tmp_path_factory.mktemp("engines")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    assert not left
    assert not list(folder.glob("trine-*"))
