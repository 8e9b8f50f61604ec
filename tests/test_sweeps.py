"""The sweeps' own machinery: lists, keys, tables, and a worker on a small model."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from bench import op_db_cells, zoo_cells, zoo_sweep, zoo_table
from bench.op_db_samples import OpCell
from bench.workers import Kind, Sweep
from bench.zoo_cells import CUTS, Line, ZooCell, cells, judged, lines
from tests.laws import pieces

from trine.graph.part import span
from trine.operators.family import family_of

REPOSITORY = Path(__file__).parents[1]
SOUND = f"{REPOSITORY}/bench/zoo_models.py:audio"


def test_the_list_is_read():
    found = lines(zoo_sweep.LIST)
    assert len({line.text for line in found}) == len(found) > 100
    every = cells(found)
    assert all(ZooCell.parse(cell.key) == cell for cell in every[:30])
    assert 0 < len(zoo_sweep.quick(every)) < len(every) / 4


def test_a_line_has_options_of_its_own():
    line = Line.parse('timm:vit --size 64 --set depth=2 --batch 3 --modes eval --cuts "height 2,channel 2"')
    assert (line.wishes.size, line.wishes.batch, line.modes, line.cuts) == (64, 3, ("eval",), ("height 2", "channel 2"))
    with pytest.raises(SystemExit):
        Line.parse("timm:vit --cuts diagonal")


def test_a_worker_judges_and_refuses():
    group = [
        ZooCell(Line.parse(SOUND), "train", cut) for cut in ("length 2", "heads 2", "stages 3 x tile 2", "height 2")
    ]
    records = {r["key"].rpartition("|")[2]: r for r in judged(group) if "key" in r}
    assert records["length 2"]["result"] == records["stages 3 x tile 2"]["result"] == "exact"
    assert records["length 2"]["shares"] == {"length": 1.0}
    assert records["height 2"]["result"] == "refused"
    assert "It can be cut by" in records["height 2"]["worst"]


def test_a_loss_is_seen_in_the_next_table(tmp_path: Path):
    line = Line.parse("x:net")
    every = [ZooCell(line, "train", cut) for cut in CUTS]
    good = {"equal": True, "result": "exact", "shares": {"height": 0.99}, "date": "2026-01-01", "commit": "a"}
    records = {cell.key: dict(good) for cell in every}
    table = tmp_path / "sweep.md"
    zoo_table.write_table(table, every, records)
    assert zoo_table.losses(table, every, records) == []
    records[every[2].key]["shares"] = {"height": 0.5}
    records[every[3].key] |= {"equal": False, "result": "DIFFERS"}
    lost = zoo_table.losses(table, every, records)
    assert lost == ["x:net train height 2: was 99.0%, is 50.0%", "x:net train height 3:2:1: was 99.0%, is DIFFERS"]


def test_what_a_worker_says_is_json(capsys: pytest.CaptureFixture[str]):
    zoo_cells.main([f"{SOUND}|eval|length 2"])
    zoo_cells.main(["nothing:here|train|height 2"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["result"] for r in records if "key" in r] == ["exact", "failed"]


@pytest.mark.parametrize("more", [0, 1])
def test_a_footprint_that_is_too_wide_is_found(more: int):
    case = pieces.build("aten.conv1d.default", {"input": torch.randn(1, 2, 9), "weight": torch.randn(3, 2, 3)})
    rule = next(rule for rule in family_of(case.op).rules(case.op, case.tensors) if rule.kind == "space")
    piece = pieces.pieces(case, [(rule, (span(0, 3), span(3, 7)))], narrow=False)[0]
    batch, channels, rows = piece.local.in_boxes[0]
    wide = (batch, channels, ((rows[0][0], rows[0][1] + more),))
    piece = replace(piece, local=replace(piece.local, in_boxes=(wide, *piece.local.in_boxes[1:])))
    assert op_db_cells.is_tight(case, piece, Random(0)) == (more == 0)


def test_a_sweep_forks_workers_and_leaves_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kind = Kind("bench.op_db_cells", tmp_path / "cells.jsonl", lambda record: bool(record["equal"]))
    every = [OpCell("abs"), OpCell("T"), OpCell("nothing.of.this.name")]
    sweep = Sweep(kind, every, {}, jobs=1)
    sweep.run()
    assert {key: bool(record["equal"]) for key, record in sweep.records.items()} == {
        "abs": True, "T": True, "nothing.of.this.name": False,
    }  # fmt: skip
    assert len(kind.known(kind.digest())) == 3
    assert [server.wait(timeout=10) for server in sweep.servers.values()] == [-signal.SIGTERM]
    assert "2 left" in capsys.readouterr().out
