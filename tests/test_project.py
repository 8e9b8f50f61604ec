"""The project holds its own limits, and starts fast."""

import ast
import os
import resource
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from tools import limits

ROOT = Path(__file__).parent.parent
HELP_S = 0.3


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False
    )


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def breaches(text: str) -> list[str]:
    return [what for _, what in limits.breaches(text, ast.parse(text), annotated=True)]


def test_the_limits_hold():
    done = run("tools/limits.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x = 1\n" * 401, "401 lines"),
        ("def f() -> None:\n" + "    x = 1\n" * 70, "71 lines"),
        ("def f() -> None:\n    import os\n", "imports inside"),
        ("def f(a) -> None: ...\n", "argument a"),
        ("def f(*a, **b) -> None: ...\n", "argument b"),
        ("def f(a: int): ...\n", "does not say what it returns"),
        ("import trine.plan.mesh as mesh\n", "from trine.plan.mesh import NAME"),
    ],
)
def test_a_breach_is_seen(text: str, word: str):
    assert any(word in what for what in breaches(text))


def test_what_is_within_the_limits_is_let_pass():
    assert (
        breaches("import os\n\nclass A:\n    def f(self, a: int, *, b: str) -> None:\n        print(os, a, b)\n") == []
    )


def test_an_import_circle_is_seen_and_one_for_types_only_is_not():
    files = {
        "trine.a": "from trine import b\n",
        "trine.b": "from trine.c import thing\n",
        "trine.c": "import trine.a\n",
        "trine.d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trine.e import x\n",
        "trine.e": "from trine.d import y\n",
    }
    graph = limits.imports({name: ast.parse(text) for name, text in files.items()})
    assert limits.circles(graph) == [["trine.a", "trine.b", "trine.c", "trine.a"]]


def test_every_room_before_the_line_is_held_to_it():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers, torch_free = tool["importlinter"]["contracts"]
    rooms = [layer.strip("()") for layer in layers["layers"]]
    before = rooms[rooms.index("capture") + 1 :]
    package = ROOT / "src" / "trine"
    here = {room for room in before if (package / room / "__init__.py").exists() or (package / f"{room}.py").exists()}
    assert {module.removeprefix("trine.") for module in torch_free["source_modules"]} == here
    assert {Path(path).stem for path in tool["mypy"]["files"]} == here


def test_importing_trine_brings_no_torch():
    done = run("-c", "import sys, trine, trine.cli; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_help_answers_at_once():
    """The best of up to ten tries, on the wall clock; the message tells a slow start from a busy machine."""
    best_s, best_cpu_s = float("inf"), float("inf")
    for _ in range(10):
        start_s, start_cpu_s = time.perf_counter(), children_cpu_s()
        done = run("-c", "import sys, trine.cli; sys.exit(trine.cli.main(['--help']))")
        best_s = min(best_s, time.perf_counter() - start_s)
        best_cpu_s = min(best_cpu_s, children_cpu_s() - start_cpu_s)
        assert done.returncode == 0, done.stderr
        if best_s < HELP_S:
            break
    assert best_s < HELP_S, f"--help took {best_s:.2f} s, of which it computed {best_cpu_s:.2f} s; the rest is waiting"
