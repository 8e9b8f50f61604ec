"""The transport alone: all types, views, single numbers, tensors without elements."""

import multiprocessing
from pathlib import Path

import pytest
from tests.processes.talk import talk

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def test_every_kind_of_tensor_arrives(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    both = [context.Process(target=talk, args=(rank, str(tmp_path / "store")), daemon=True) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
