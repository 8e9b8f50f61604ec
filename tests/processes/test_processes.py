"""Processes = threads = lockstep; sent = received."""

import pickle
from dataclasses import replace

import pytest
import torch
from tests.processes.cases import PLANS, case, differences

from trine.errors import BadInput
from trine.run.lockstep import Lockstep
from trine.run.optimizer import OptimizerSpec
from trine.run.processes import Processes
from trine.run.threads import Threads

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]
REPEATS = 3
LIMIT = 1e-12


@pytest.mark.parametrize("plan", PLANS)
def test_processes_equal_threads_and_lockstep(plan: str) -> None:
    """Over three training steps, three times: from whole numbers bit for bit, else in float64."""
    small = case(plan)
    limit = 0.0 if plan.startswith("whole numbers") else LIMIT
    expected = list(map(Lockstep(small.programs, small.state, small.optimizer).step, small.steps))
    for _ in range(REPEATS):
        with (
            Processes(small.programs, small.state, small.optimizer, start_method="forkserver") as processes,
            Threads(small.programs, small.state, small.optimizer) as threads,
        ):
            for step, lockstep in zip(small.steps, expected, strict=True):
                whole = processes.step(step)
                for other in (threads.step(step), lockstep):
                    far = {name: by for name, by in differences(whole, other).items() if by > limit}
                    assert not far
                    assert other.bytes_sent == whole.bytes_sent
                assert sum(whole.bytes_sent) == sum(processes.bytes_received) > 0
                assert bool(whole.loss(step.weights).isfinite())


def test_without_tensors_only_losses_and_counts_come_back() -> None:
    small = case("data", num_steps=1)
    with Processes(small.programs, small.state, small.optimizer, start_method="forkserver") as processes:
        whole = processes.step(small.steps[0], tensors=False)
    assert set(whole.losses) == {0}
    assert not whole.gradients
    assert not whole.state


def test_spawned_from_nothing() -> None:
    small = case("1f1b", num_steps=1)
    expected = Lockstep(small.programs, small.state).step(small.steps[0])
    with Processes(small.programs, small.state) as processes:
        assert not {k: v for k, v in differences(processes.step(small.steps[0]), expected).items() if v > LIMIT}
        taller = {name: torch.cat([tensor] * 3) for name, tensor in small.steps[0].inputs.items()}
        other = replace(small.steps[0], inputs=taller)
        processes.step(other)  # a larger batch than before is mapped anew; its first rows are used


def test_an_optimizer_that_cannot_be_pickled_is_refused() -> None:
    small = case("data")
    with pytest.raises(BadInput, match="cannot be sent to other processes"):
        Processes(small.programs, small.state, lambda parameters: torch.optim.SGD(parameters, lr=0.1))


def test_other_backends_are_refused() -> None:
    small = case("data")
    with pytest.raises(BadInput, match="gloo and the CPU"):
        Processes(small.programs, small.state, backend="nccl", device="cuda:0")


def test_ended_engines_make_no_step() -> None:
    small = case("data")
    processes = Processes(small.programs, small.state, start_method="forkserver")
    processes.close()
    processes.close()
    with pytest.raises(BadInput, match="were ended"):
        processes.step(small.steps[0])


def test_optimizer_spec() -> None:
    spec = OptimizerSpec("adamw", lr=0.5, weight_decay=0.1, betas=(0.5, 0.6))
    assert pickle.loads(pickle.dumps(spec)) == spec
    made = spec([torch.zeros(2)])
    assert isinstance(made, torch.optim.AdamW)
    assert made.defaults["betas"] == (0.5, 0.6)
    assert made.defaults["lr"] == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "adam", "momentum": 0.9}, "no such setting"),
        ({"name": "sdg"}, "no optimizer named 'sdg'"),
        ({"lr": -1.0}, "lr = -1"),
        ({"name": "adam", "betas": (0.9, 1.0)}, "below 1"),
        ({"nesterov": True}, "needs a momentum"),
    ],
)
def test_settings_that_an_optimizer_does_not_have(settings: dict, message: str) -> None:
    with pytest.raises(Exception, match=message):
        OptimizerSpec(**settings)
