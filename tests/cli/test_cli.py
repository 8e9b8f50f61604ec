"""The command line as a whole: what a verb gets, what is refused, and the exit status."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from trine.cli import STATUS, VERBS, main
from trine.cli.options import LATER, Options
from trine.errors import EngineFailed, NotEqual

Work = Callable[[Options], int]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Work], list[Options]]:
    """Return a function that puts `do` behind a verb and returns the list of the options that it gets."""

    def put(verb: str, do: Work = lambda options: 0) -> list[Options]:
        got: list[Options] = []
        module = ModuleType(f"trine.report.{verb}")
        module.run = lambda options: (got.append(options), do(options))[1]
        monkeypatch.setitem(sys.modules, "trine.report", ModuleType("trine.report"))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return got

    return put


def fail(error: BaseException) -> Work:
    def do(options: Options) -> int:
        raise error

    return do


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("engines", "validate")])
def test_a_verb_gets_its_options(verb: str, work):
    got = work(verb)
    assert main([verb, "torchvision:resnet18", "--batch", "8", "--size=64", "-q"]) == 0
    assert (got[0].model.spec, got[0].scenario.batch, got[0].model.size) == ("torchvision:resnet18", 8, 64)
    assert got[0].output.quiet


def test_short_names_mean_the_same(work):
    got = work("plan")
    assert main(["plan", "m", "--dp", "2", "--pp", "3", "--tp", "2x2"]) == 0
    assert main(["plan", "m", "--data", "2", "--stages", "3", "--tensor", "2x2"]) == 0
    assert got[0] == got[1]


def test_engines_takes_no_model_and_knows_where_measurements_are_kept(work, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    got = work("engines")
    assert main(["engines", "--calibrate"]) == 0
    assert got[0].engines.calibrate
    assert got[0].cache == tmp_path / "trine"
    assert main(["engines", "torchvision:resnet18"]) == 2


def test_validate_takes_tables_and_no_model(work, tmp_path):
    tables = [tmp_path / name for name in ("a.csv", "b.csv")]
    for table in tables:
        table.write_text("")
    got = work("validate")
    assert main(["validate", *map(str, tables)]) == main(["validate"]) == 0
    assert [options.tables.files for options in got] == [tuple(tables), ()]
    assert main(["validate", str(tmp_path / "c.csv")]) == main(["validate", "--batch", "4"]) == 2


def test_a_plan_file_stands_for_the_model(work, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    got = work("verify")
    assert main(["verify", "--plan", str(plan)]) == 0
    assert (got[0].model.spec, got[0].plan.file) == (None, plan)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare"], ["MODEL is missing", "--plan", "trine compare torchvision:resnet18"]),
        (["inspect"], ["MODEL is missing", "trine inspect"]),
        (["compere", "m"], ["'compere'", "nearest: compare", "trine --help"]),
        (["engines", "--batch", "4"], ["`trine engines` does not take --batch", "compare", "--help"]),
        (["verify", "m", "--cluster=a100x8"], ["does not take --cluster", "simulate"]),
        (["plan", "m", "--calibrate"], ["does not take --calibrate", "option of engines"]),
        (["engines", "-v"], ["does not take -v", "option of inspect"]),
        (["compare", "m", "--cluster", "a100-80gbx2"], ["does not take --cluster", "option of plan, simulate"]),
    ],
)
def test_bad_input_is_one_message_and_status_2(words: list[str], said: list[str], capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert [word for word in said if word not in err] == []
    assert out == ""
    assert err.startswith("trine: ")
    assert "Traceback" not in err


def test_an_option_that_nobody_knows_is_an_error(capsys):
    assert main(["compare", "m", "--bach", "3"]) == 2
    assert "--batch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotEqual(what="loss", where="[0]", difference=1.0, limit=1e-9), 1),
        (EngineFailed(rank=0, trace="gone"), 3),
        (KeyboardInterrupt(), 130),
        (RuntimeError("a defect"), 3),
    ],
)
def test_the_exit_status_says_how_it_ended(error: BaseException, status: int, work, capsys):
    work("verify", fail(error))
    assert main(["verify", "m"]) == status
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, RuntimeError)


def test_the_answer_no_is_status_1(work):
    work("verify", lambda options: 1)
    assert main(["verify", "m"]) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(verb: str, capsys):
    assert main([verb, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert VERBS[verb] in help_text
    assert f"trine {verb}" in help_text
    assert "--json" in help_text


def test_help_lists_every_verb_and_the_exit_statuses(capsys):
    assert main(["--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(verb in help_text for verb in VERBS)
    spoken = " ".join(help_text.split())
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for number, words in STATUS.items():
        assert f"{number} {words}" in spoken
        assert f"| {number} | {words} |" in readme


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_for_later_is_refused_and_not_taught(verb: str, capsys):
    main([verb, "--help"])
    help_text = capsys.readouterr().out
    for flag, why in LATER.items():
        assert flag not in help_text
        assert main([verb, flag, "1"]) == 2
        assert f"{flag} was given, but {why}" in capsys.readouterr().err
    for word in ("zero-bubble", "interleaved"):
        assert word not in help_text


def test_code_is_named_as_code(capsys):
    main(["compare", "-h"])
    assert "are code" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("trine 0.")
