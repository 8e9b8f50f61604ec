"""Under torchrun, the processes that are there become the engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.processes.cases import case, differences

from trine.run.collect import Whole
from trine.run.lockstep import Lockstep

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
REPOSITORY = Path(__file__).parents[2]


def test_torchrun_equals_lockstep(tmp_path: Path) -> None:
    plan = "1f1b"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.processes.joining", plan, str(tmp_path / "wholes")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    small = case(plan)
    expected = list(map(Lockstep(small.programs, small.state, small.optimizer).step, small.steps))
    for fields, lockstep in zip(torch.load(tmp_path / "wholes"), expected, strict=True):
        assert max(differences(Whole(**fields), lockstep).values(), default=0.0) < 1e-12
