"""Under torchrun, the processes that are there become the engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.processes.cases import case, differences
from tests.run.small import apart, images, net
from torch.nn import functional

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


def run_two(tmp_path: Path, script: str, *args: str) -> list[str]:
    """What each of two processes said."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", f"tests.processes.{script}", str(tmp_path / "out"), *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [(tmp_path / f"out.{rank}.said").read_text() for rank in (0, 1)]


def test_train_step_uses_the_processes_that_are_there(tmp_path: Path) -> None:
    """Both get the loss and the weights that one engine has."""
    assert run_two(tmp_path, "training_joined", "equal") == ["", ""]
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for number in range(3):
        x, y = images(4, number)
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for rank in (0, 1):
        found = torch.load(tmp_path / f"out.{rank}")
        assert found["losses"] == pytest.approx(losses, abs=1e-12)
        assert apart(found["weights"], module.state_dict()) < 1e-12


@pytest.mark.parametrize(
    ("kind", "said"),
    [("weights", "different weights"), ("batches", "different batches"), ("three", "2 processes were started")],
)
def test_processes_that_do_not_fit_are_told(tmp_path: Path, kind: str, said: str) -> None:
    assert all(said in text for text in run_two(tmp_path, "training_joined", kind))


@pytest.mark.parametrize("cut", ["batch", "height", "channel", "stages"])
def test_parallelize_uses_the_processes_that_are_there(tmp_path: Path, cut: str) -> None:
    """The user's own loop: both get losses, weights, a gradient of the input and an output as from the module alone."""
    assert run_two(tmp_path, "parallel_joined", cut, "equal") == ["", ""]
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for number in range(3):
        x, y = images(4, number)
        x.requires_grad_()
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), y) + 0.1 * module(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    module.eval()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"out.{rank}")
        assert found["losses"] == pytest.approx(losses, abs=1e-12)
        assert apart(found["weights"], dict(module.state_dict())) < 1e-12
        assert torch.allclose(found["gradient"], x.grad, atol=1e-12)
        assert torch.allclose(found["output"], module(x), atol=1e-12)


@pytest.mark.parametrize(("kind", "said"), [("weights", "different weights"), ("batches", "different batches")])
def test_parallel_modules_that_differ_are_told(tmp_path: Path, kind: str, said: str) -> None:
    assert all(said in text for text in run_two(tmp_path, "parallel_joined", "batch", kind))
