"""Every example that a verb prints is accepted: nothing refuses it up to where the work begins."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from trine.cli import VERBS, main
from trine.plan.file import write_plan
from trine.plan.plan import Plan

NET = f"{Path(__file__).parent / 'small.py'}:net"
EXAMPLES = [(verb, line) for verb in VERBS for line in import_module(f"trine.cli.{verb}").VERB.examples]
BEGINS = (
    ("trine.report.wish", "load_model"), ("trine.report.inspect", "load_model"), ("trine.report.engines", "engines"),
    ("trine.report.validate", "tables"),
)  # fmt: skip


class Begun(BaseException):
    """The work was reached."""


def begin(*args: object, **kwargs: object) -> None:
    raise Begun


@pytest.mark.parametrize(("verb", "line"), EXAMPLES)
def test_it_reaches_the_work(verb: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module, name in BEGINS:
        monkeypatch.setattr(import_module(module), name, begin)
    program, *words = shlex.split(line)
    if "--plan" in words:
        write_plan(Plan(model="hf:gpt2"), Path(words[words.index("--plan") + 1]))
    for word in words:
        if word.endswith(".csv"):
            Path(word).write_text("")
    assert (program, words[0]) == ("trine", verb)
    with pytest.raises(Begun):
        main(words)


@pytest.mark.parametrize(
    ("verb", "line"), [(verb, line) for verb, line in EXAMPLES if verb in ("plan", "simulate") and "--plan" not in line]
)
def test_its_options_go_together(verb: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole command, with a small model for the one that is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _, _, _, *options = shlex.split(line)
    if verb == "plan" and "--cluster" in options:
        options += ["--scenario", "device", "--batch", "2"]  # fewer plans
    assert main([verb, NET, *options]) == 0
