"""By-name loading, and the names that `import trine` promises."""

import importlib
import sys
from types import ModuleType

import pytest

import trine
from trine._load import load


def test_a_target_is_module_and_attribute():
    assert load("trine.errors:TrineError") is importlib.import_module("trine.errors").TrineError


def test_a_missing_module_and_a_missing_attribute_are_told_apart():
    with pytest.raises(ImportError):
        load("trine.nowhere:thing")
    with pytest.raises(AttributeError):
        load("trine.errors:Nothing")


def test_a_name_that_is_not_promised_lists_those_that_are():
    with pytest.raises(AttributeError, match=r"'fly'.*compare.*verify"):
        trine.fly  # noqa: B018


def test_promised_names_are_listed():
    assert {"compare", "plan", "parallelize", "train_step", "simulate", "verify", "inspect"} <= set(dir(trine))


def test_a_room_never_hides_the_promised_function_of_its_name(monkeypatch: pytest.MonkeyPatch):
    report = ModuleType("trine_report_plan")
    report.plan = lambda: "planned"
    monkeypatch.setitem(sys.modules, report.__name__, report)
    monkeypatch.setitem(trine._PROMISE, "plan", f"{report.__name__}:plan")
    trine.plan = ModuleType("trine.plan")  # what importing the room trine.plan does
    assert trine.plan() == "planned"
