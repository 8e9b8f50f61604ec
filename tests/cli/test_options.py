"""From words to options, and the errors on the way."""

from dataclasses import fields
from pathlib import Path

import pytest

from trine.cli.options import GROUPS, Options, build, declarations
from trine.cli.values import InputShape, Setting
from trine.errors import BadInput, TrineError

HERE = Path(__file__)


def test_nothing_said_is_nothing_set():
    assert build({}) == Options()


@pytest.mark.parametrize(
    ("name", "said", "value"),
    [
        ("model.spec", "torchvision:resnet18", "torchvision:resnet18"),
        ("model.set", ["a=1", "b = x=y"], (Setting("a", "1"), Setting("b", "x=y"))),
        ("model.load", str(HERE), HERE),
        ("model.size", "224", 224),
        (
            "model.input",
            ["3x224x224", "128:int64"],
            (InputShape((3, 224, 224), "float32"), InputShape((128,), "int64")),
        ),
        ("model.dtype", "bf16", "bfloat16"),
        ("model.seed", "0", 0),
        ("engines.engines", "2", 2),
        ("engines.calibrate", True, True),
        ("plan.tensor", "4", (4,)),
        ("plan.tensor", "2x2", (2, 2)),
        ("plan.cut", "height, width", ("height", "width")),
        ("plan.shares", "3:1", (3.0, 1.0)),
        ("plan.schedule", "1f1b", "1f1b"),
        ("scenario.scenario", "cloud-inference,on-device", ("cloud", "device")),
        ("how.on", "threads", ("threads",)),
        ("how.budget_s", "3m", 180.0),
        ("output.json", str(HERE.parent / "new.json"), HERE.parent / "new.json"),
    ],
)
def test_words_become_values(name: str, said: object, value: object):
    group, _, option = name.partition(".")
    assert getattr(getattr(build({name: said}), group), option) == value


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("model.size", "0", ["--size 0", "1 or more"]),
        ("model.size", "9" * 5000, ["--size", "1 or more"]),
        ("model.set", ["a"], ["--set a", "key=value"]),
        ("model.load", "no/such/file", ["--load", "no such file"]),
        ("model.input", ["3x0"], ["--input 3x0", "3x224x224"]),
        ("model.dtype", "float", ["'float'", "float32", "bf16"]),
        ("plan.tensor", "2x", ["--tensor 2x", "2x2"]),
        ("plan.cut", "heads,heads", ["twice"]),
        ("plan.cut", "heads,", ["--cut"]),
        ("plan.shares", "3", ["--shares 3", "3:1"]),
        ("plan.shares", "0:0", ["--shares 0:0", "above 0"]),
        ("plan.cut", "hight", ["'hight'", "nearest: height", "depth"]),
        ("plan.schedule", "gpip", ["'gpip'", "nearest: gpipe"]),
        ("scenario.scenario", "cloud,cloud-inference", ["twice"]),
        ("how.budget_s", "100", ["--budget", "the unit is missing"]),
        ("how.budget_s", "0s", ["--budget 0", "more than 0"]),
        ("output.json", "no/such/folder/x.json", ["--json", "folder that exists"]),
    ],
)
def test_a_wrong_word_says_what_is_possible(name: str, said: object, words: list[str]):
    with pytest.raises(TrineError) as caught:
        build({name: said})
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "said",
    [
        {"engines.engines": "2", "engines.cluster": "a100x8"},
        {"output.quiet": True, "output.verbose": True},
        {"plan.file": str(HERE), "plan.data": "2"},
        {"plan.file": str(HERE), "plan.shares": "3:1"},
    ],
)
def test_a_contradiction_is_an_error(said: dict[str, object]):
    with pytest.raises(BadInput, match="together"):
        build(said)


def test_a_plan_file_may_be_saved_again():
    assert build({"plan.file": str(HERE), "output.save_plan": "copy.json"}).output.save_plan == Path("copy.json")


def test_every_option_has_help_and_a_spelling_of_its_own():
    declared = declarations()
    flags = [flag for declaration in declared.values() for flag in declaration.flags]
    assert len(flags) == len(set(flags))
    assert all(declaration.help.endswith(".") for declaration in declared.values())
    assert len(declared) == sum(len(fields(group)) for group in GROUPS.values())


@pytest.mark.parametrize("group", GROUPS.values())
def test_options_are_frozen(group: type):
    with pytest.raises(AttributeError):
        setattr(group(), fields(group)[0].name, 1)
