"""Errors: each says what was given, what is possible and what to change, and survives the way to another process."""

import pickle
from itertools import pairwise

import pytest

from trine import errors
from trine.errors import TrineError

# Each error with the words that its message must hold.
SAMPLES: list[tuple[TrineError, int, list[str]]] = [
    (errors.BadInput("--size 0 was given.", "It takes 1 or more."), 2, ["--size 0 was given. It takes 1 or more."]),
    (errors.UnknownName("preset", "a100-80", ["v5e", "a100-80gb"]), 2, ["preset", "'a100-80'", "nearest: a100-80gb"]),
    (errors.UnknownName("preset", "q", ["a100", "h100"]), 2, ["Possible: a100, h100"]),
    (errors.UnknownName(kind="model", name="q", nearest=[], change="See --help."), 2, ["'q'", "See --help."]),
    (errors.UnknownKey(where="c.toml", key="mem", known=["memory"]), 2, ["c.toml", "'mem'", "Did you mean 'memory'"]),
    (errors.UnknownKey(where="c.toml", key="mem", known=["link"]), 2, ["Possible keys: link", "Take 'mem' out"]),
    (
        errors.DoesNotDivide(axis="tensor", degree=3, dim="heads", size=32),
        2,
        ["tensor", "heads", "3 does not divide 32", "1, 2, 4, 8, 16, 32"],
    ),
    (
        errors.CannotCut(axis="data", degree=9, dim="batch", size=8, possible=[2, 4], why="Rows are whole."),
        2,
        ["data", "9", "batch", "size 8", "2, 4", "Rows are whole."],
    ),
    (errors.CannotCut(axis="tensor", degree=2, dim="height", size=1), 2, ["cannot be cut at all"]),
    (
        errors.CaptureFailed(model="net.py:net", line="net.py:12: if x.sum() > 0:", why="a value decides."),
        2,
        ["net.py:net", "net.py:12: if x.sum() > 0:", "a value decides.", "--data"],
    ),
    (
        errors.EngineFailed(rank=1, trace="ValueError: no", others="The other 3 were ended."),
        3,
        ["Engine 1", "ValueError: no", "The other 3 were ended."],
    ),
    (errors.EngineFailed(rank=1, trace=""), 3, ["left no trace"]),
    (
        errors.OutOfMemory(rank=2, needed="91 GiB", limit="80 GiB", fits="It fits with --zero 3."),
        3,
        ["Engine 2", "91 GiB", "80 GiB", "It fits with --zero 3."],
    ),
    (errors.OutOfMemory(rank=2, needed="91 GiB", limit="80 GiB"), 3, ["No plan that fits", "smaller batch"]),
    (
        errors.NothingFits(tried=8, plan="stages 2", short="engine 1 needs 91 GiB, and there are 80 GiB"),
        1,
        ["None of 8 plans", "stages 2", "91 GiB", "80 GiB", "more memory"],
    ),
    (
        errors.NothingFits(tried=1, plan="stages 2", short="engine 1 needs 91 GiB", nearest="With --batch 4 it fits."),
        1,
        ["The plan stages 2 does not fit", "91 GiB. With --batch 4 it fits."],
    ),
    (
        errors.PlanMismatch(plan="p.json", changed=["input 0 was 8x3", "it has 4 engines"]),
        2,
        ["p.json", "input 0 was 8x3; it has 4 engines", "--save-plan"],
    ),
    (
        errors.NotEqual(what="gradient of fc.weight", where="[3, 7]", difference=0.0123, limit=1e-9),
        1,
        ["gradient of fc.weight", "[3, 7]", "0.0123", "1e-09"],
    ),
]


@pytest.mark.parametrize(("error", "status", "words"), SAMPLES)
def test_the_message_says_it_all(error: TrineError, status: int, words: list[str]):
    assert [word for word in words if word not in str(error)] == []
    assert error.exit_status == status


@pytest.mark.parametrize("error", [error for error, _, _ in SAMPLES])
def test_the_message_reads_as_sentences(error: TrineError):
    assert "  " not in str(error)
    assert not any(one == two == "." for one, two in pairwise(str(error)))


@pytest.mark.parametrize("error", [error for error, _, _ in SAMPLES])
def test_it_travels_between_processes(error: TrineError):
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), vars(there)) == (type(error), str(error), vars(error))


def test_every_child_is_tried():
    children = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TrineError)}
    assert children == {type(error) for error, _, _ in SAMPLES} | {TrineError}


def test_a_long_list_says_how_much_is_left_out():
    assert errors.listing(range(14)).endswith("11 and 2 more")


def test_names_alike_are_found_whatever_their_case():
    assert errors.alike("RESNET18", ["resnet18", "vgg16"]) == ["resnet18"]
