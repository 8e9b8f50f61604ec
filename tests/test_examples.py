"""Every example runs, without a word on the error stream."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_it_runs(example: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, env=environment, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr
