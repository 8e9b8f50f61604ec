"""A plan file says where it is wrong, and never runs anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.simulate.small import mlp

from trine.errors import BadInput
from trine.plan.build import build
from trine.plan.file import LARGEST_BYTES, read_plan, write_plan

Change = dict[str, Any]


def test_written_and_read(tmp_path: Path) -> None:
    plan = build(mlp(4, 4), data=2, stages=2, micro_batches=2, shares=(3, 1), batch=8)
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"axes": [{"name": "data", "size": "2", "cut": "batch"}]}, r"\$\.axes\[0\]\.size"),
        ({"axes": [{"name": "data", "size": 2, "cut": "batch", "colour": 1}]}, "colour"),
        ({"schedule": "zigzag"}, r"\$\.schedule"),
        ({"engines": 3}, "engines"),
        ({"micro_batches": None}, r"\$\.micro_batches"),
        ({"stage_starts": "linear1"}, r"\$\.stage_starts"),
    ],
    ids=["type", "key of an axis", "schedule", "key", "null", "string"],
)
def test_a_wrong_value_is_named(tmp_path: Path, change: Change, words: str) -> None:
    path = tmp_path / "plan.json"
    write_plan(build(mlp(8, 4), data=2, batch=8), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=words):
        read_plan(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2", b"\xff\xfe", b"[" * 200_000, b"!!python/object/apply:os.system ['true']", b"null", b"[]"],
    ids=["empty", "open", "list", "bytes", "deep", "code", "null", "array"],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"plan\.json"):
        read_plan(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(BadInput, match="at most 16 MiB"):
        read_plan(path)


def test_a_missing_file_and_an_unwritable_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="could not be read"):
        read_plan(tmp_path / "no.json")
    with pytest.raises(BadInput, match="could not be written"):
        write_plan(build(mlp(8, 4), data=2, batch=8), tmp_path / "no" / "plan.json")
