"""`-q` leaves the answer, and `-v` shows what is left out otherwise."""

from pathlib import Path

import pytest

from trine.cli import main
from trine.report import simulate

NET = f"{Path(__file__).parent / 'small.py'}:net"
HERE = ["--cluster", "a100-80gbx2"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["plan", NET, "--data", "2", *HERE], "=> data 2 (batch): "),
        (["simulate", NET, "--data", "2", *HERE], "=> data 2 (batch): "),
        (["verify", NET, "--data", "2"], "Equal: "),
    ],
)
def test_the_answer_only(words: list[str], answer: str, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 0
    whole = capsys.readouterr().out.splitlines()
    assert main([*words, "-q"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(answer)
    assert any(said.startswith(answer) for said in whole)
    assert len(whole) > 3


def test_engines_that_are_not_shown_are_counted(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(simulate, "MOST_ROWS", 1)
    words = ["simulate", NET, "--data", "2", *HERE]
    main(words)
    assert "1 engines more" in capsys.readouterr().out
    main([*words, "-v"])
    assert "more" not in capsys.readouterr().out
