"""Predictions beside published measurements: the bars, the reasons, and tables that cannot be read."""

import csv
import json
from pathlib import Path

import pytest
from bench.validate import fit

from trine.cli import main
from trine.cost.step import step
from trine.errors import BadInput
from trine.report.tables import read_table
from trine.report.training_rows import case
from trine.report.validate import Group, Validation, validate

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "bench" / "validate"
FREE = ("MIT", "Apache-2.0", "BSD-3-Clause", "paper facts")


@pytest.fixture(scope="module")
def found() -> Validation:
    return validate(sorted(FOLDER.glob("*.csv")))


def group(found: Validation, *words: str) -> Group:
    (one,) = [each for each in found.groups if all(word in each.name for word in words) and each.score]
    return one


def table(path: Path, rows: list[dict[str, str]]) -> Path:
    """A table with these rows."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


# ---- the bars


@pytest.mark.parametrize(
    ("words", "num_rows", "bar"),
    [
        (("SC21 Table 1",), 10, 0.030),
        (("SC21 Table 2, a100-80gb",), 6, 0.030),
        (("Korthikanti", "full"), 4, 0.035),
        (("Korthikanti", "selective"), 4, 0.023),
        (("vTrain, a100",), 1080, 0.095),
        (("llm-foundry", "h100"), 67, 0.095),
        (("llm-foundry", "a100-80gb"), 51, 0.075),
        (("llm-foundry", "a100-40gb"), 68, 0.056),
        (("params+optimizer",), 4, 0.02),
        (("activations GiB",), 8, 0.02),
        (("activation memory %",), 16, 0.02),
    ],
)
def test_the_mean_error_is_below_the_bar(words: tuple[str, ...], num_rows: int, bar: float, found: Validation):
    (one,) = [
        each
        for each in found.groups
        if all(word in each.name for word in words) and "ZeRO" not in each.name and each.score
    ]
    assert one.score is not None
    assert (one.score.n, one.score.mean <= bar) == (num_rows, True), one


@pytest.mark.parametrize("table", ["train_cnn_dataparallel.csv", "edge_latency_ncnn.csv"])
def test_it_is_nearer_than_the_simple_rule(table: str, found: Validation):
    """Perfect scaling, and the device's median ratio to the others."""
    errors = [
        (row.error, row.beside / row.measured - 1)
        for row in found.rows
        if Path(row.file).name == table and row.scored and row.beside
    ]
    assert len(errors) > 40
    mine, rule = (sum(map(abs, column)) / len(errors) for column in zip(*errors, strict=True))
    assert mine < rule


def test_plans_are_put_in_order(found: Validation):
    vtrain = group(found, "vTrain, a100").score
    assert vtrain is not None
    assert vtrain.num_choices > 100
    assert vtrain.regret is not None
    assert vtrain.regret < 0.06
    assert vtrain.rank_correlation is not None
    assert vtrain.rank_correlation > 0.98


# ---- honesty


def test_constants_in_the_code_are_those_of_the_fit():
    for what, (value, stands) in fit.every().items():
        assert stands == pytest.approx(value, rel=0.01), what


def test_marked_rows_are_not_scored(found: Validation):
    by_table = {
        Path(table).name: [row for row in found.rows if row.file == table] for table in {row.file for row in found.rows}
    }
    marked = {name: sum(bool(row.use) for row in rows) for name, rows in by_table.items()}
    assert marked["train_vtrain_singlenode_a100.csv"] == 360
    assert marked["train_llmfoundry_mpt_a100_h100.csv"] == 30
    assert sum(each.score.n for each in found.groups if each.score) == sum(row.scored for row in found.rows)


def test_every_row_has_a_prediction_or_a_reason(found: Validation):
    lines = sum(len(read_table(path).lines) for path in FOLDER.glob("*.csv"))
    assert len(found.rows) == lines
    assert all((row.predicted is None) == bool(row.reason) or row.unit == "%" for row in found.rows)


def test_changing_a_scored_measurement_changes_no_prediction(tmp_path: Path):
    """A prediction that knew what it is held against would follow it."""
    source = FOLDER / "train_llmfoundry_mpt_a100_h100.csv"
    with source.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        if not row["use"]:
            row["step_time_s_derived"] = str(3 * float(row["step_time_s_derived"]))
    copy = table(tmp_path / source.name, rows)
    before, after = (validate([path]).rows for path in (source, copy))
    assert [row.predicted for row in before] == [row.predicted for row in after]


def test_every_table_has_a_licence_that_lets_it_be_here_and_a_notice():
    notice = (FOLDER / "NOTICE").read_text()
    for path in FOLDER.glob("*.csv"):
        with path.open(newline="") as stream:
            licences = {row["licence"] for row in csv.DictReader(stream)}
        assert all(licence.startswith(FREE) for licence in licences), (path, licences)
        assert path.name in notice


def test_the_wheel_carries_no_table():
    assert list((REPOSITORY / "src").rglob("*.csv")) == []


# ---- one's own tables


HEADER = "hardware,gpus,hidden,layers,heads,seq,global_batch,micro_batch,dp,pp,tp,recompute,step_time_s"
ROW = "a100-80gb,8,4096,32,32,2048,64,1,1,1,8,full,10.0"


def own(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_of_ones_own(tmp_path: Path):
    path = own(tmp_path, HEADER, ROW, ROW.replace("a100-80gb", "abacus"), ROW.replace(",8,4096", ",9,4096"))
    rows = validate([path]).rows
    known = case(read_table(path).lines[0])
    assert rows[0].predicted == step(known.model, known.split, known.machine).time_s
    assert "no preset for the hardware 'abacus'" in rows[1].reason
    assert "not the number of GPUs" in rows[2].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"micro_batch": ""}, "micro_batch is not given"),
        ({"global_batch": "63", "micro_batch": "2"}, "must divide"),
        ({"recompute": "some"}, "the recompute 'some'"),
        ({"hidden": ""}, "hidden is not given"),
        ({"step_time_s": ""}, "nothing is measured"),
        ({"dp": "", "tp": "16"}, "more than the number of GPUs"),
        ({"hardware": "A100 PCIe 80GB"}, "no preset"),
        ({"precision": "fp32"}, "the precision 'fp32'"),
        ({"precision": "fp8"}, "no rate for float8"),
        ({"kv_heads": "8", "cp": "2"}, "context parallelism"),
        ({"zero_stage": "3", "dp": "1", "pp": "8", "tp": "1"}, "ZeRO-3 over 8 stages"),
        ({"status": "oom"}, "it did not run: oom"),
    ],
)
def test_the_reason_names_what_is_missing(change: dict[str, str], reason: str, tmp_path: Path):
    cells = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | change
    (row,) = validate([own(tmp_path, ",".join(cells), ",".join(cells.values()))]).rows
    assert reason in row.reason


def test_speed_may_be_given_in_tokens(tmp_path: Path):
    seconds = validate([own(tmp_path, HEADER, ROW)]).rows[0]
    for name, value in (
        ("tokens_per_s", 64 * 2048 / 10),
        ("tokens_per_s_per_gpu", 64 * 2048 / 80),
        ("samples_per_s", 6.4),
    ):
        row = ROW.removesuffix("10.0") + str(value)
        assert validate([own(tmp_path, HEADER.replace("step_time_s", name), row)]).rows[0] == seconds


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER, ROW.replace("4096", "many")], ["own.csv, row 2, column hidden", "'many'", "number above 0"]),
        ([HEADER, ROW, ROW.replace("10.0", "10 s")], ["row 3, column step_time_s", "'10 s'", "without a unit"]),
        ([HEADER, ROW.replace("10.0", "-1")], ["column step_time_s", "'-1'"]),
        ([HEADER, ROW.replace("10.0", "nan")], ["column step_time_s", "'nan'"]),
        ([HEADER, ROW.replace("4096", "4096.5")], ["column hidden", "whole number"]),
        ([HEADER, ROW.replace("4096", "1e300")], ["column hidden", "whole number"]),
        ([HEADER, ROW.replace("4096", "\x1b[31m")], ["column hidden", "x1b"]),
        ([HEADER, ROW + ",x"], ["row 2: 14 cells", "13 columns"]),
        ([HEADER + ",use", ROW + ",both"], ["row 2, column use", "'both'", "scale"]),
        ([HEADER + ",zero_stage", ROW + ",4"], ["column zero_stage", "'4'"]),
        ([HEADER + ",mlp", ROW + ",round"], ["column mlp", "'round'", "gated"]),
        ([HEADER.replace("step_time_s", "step_time_ms"), ROW], ["training", "step_time_s", "'step_time_ms'", "units"]),
        ([HEADER.replace("hardware", "gpus"), ROW], ["'gpus' 2 times"]),
        ([HEADER], ["has no rows"]),
        ([""], ["has no rows"]),
        (["colour,size", "red,3"], ["lacks", "colour, size", "docs/validate.md"]),
        (
            ["quantity,unit,hidden,layers,heads,seq,micro_batch,tp,pp,value", "activations,MB,1,1,1,1,1,1,1,1"],
            ["column unit", "'MB'", "GiB"],
        ),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_says_where(lines: list[str], words: list[str], tmp_path: Path):
    with pytest.raises(BadInput) as caught:
        validate([own(tmp_path, *lines)])
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b'a,b\n"' + b"x" * 200_000, b"\x00" * 10])
def test_a_file_that_is_no_table(data: bytes, tmp_path: Path):
    path = tmp_path / "own.csv"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"own\.csv"):
        validate([path])


def test_a_remark_behind_a_number_is_let_stand(tmp_path: Path):
    rows = [ROW, ROW.replace(",8,4096", ",8 (of 16),4096")]
    first, second = validate([own(tmp_path, HEADER, *rows)]).rows
    assert first.predicted == second.predicted


def test_a_device_without_marks_gives_its_rates_by_the_usual_nets(tmp_path: Path):
    marked = FOLDER / "edge_latency_ncnn.csv"
    with marked.open(newline="") as stream:
        rows = [row | {"use": ""} for row in csv.DictReader(stream)]
    bare = table(tmp_path / "bare.csv", rows)
    with_marks, without = (validate([path]).rows for path in (marked, bare))
    assert [row.predicted for row in with_marks] == [row.predicted for row in without]
    assert [row.use for row in with_marks] == [row.use for row in without]


# ---- the verb


def test_the_verb_shows_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, saved = own(tmp_path, HEADER, ROW, ROW.replace("a100-80gb", "abacus")), tmp_path / "errors.json"
    assert main(["validate", str(path), "--json", str(saved), "-v"]) == 0
    shown = capsys.readouterr().out
    assert "1 not predicted: there is no preset for the hardware 'abacus'" in shown
    assert "row 2:" in shown
    written = json.loads(saved.read_text())
    assert len(written["rows"]) == 2
    assert written["rows"][0]["error"] == pytest.approx(written["groups"][0]["score"]["bias"])
    assert main(["validate", str(path), "-q"]) == 0
    assert "not predicted" not in capsys.readouterr().out


def test_the_status_says_that_nothing_could_be_predicted(tmp_path: Path):
    assert main(["validate", str(own(tmp_path, HEADER, ROW.replace("a100-80gb", "abacus")))]) == 1


def test_without_a_table_it_takes_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 2
    assert "trine validate measured.csv" in capsys.readouterr().err
    (tmp_path / "bench" / "validate").mkdir(parents=True)
    own(tmp_path / "bench" / "validate", HEADER, ROW)
    assert main(["validate"]) == 0
    assert str(Path("bench/validate/own.csv")) in capsys.readouterr().out
