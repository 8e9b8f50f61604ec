"""The size of a process that runs tensors, from single operators: none of them is of the model that is compared.

A process grows by more than its live tensors.  glibc's aligned allocation, which torch uses, does not take a freed
block of exactly the size that is asked for: a thread that makes and drops one tensor of 25 MB four times stands at 26,
50, 75 and 99 MB (glibc 2.36), whatever its thresholds.  And oneDNN copies what it convolves while it works.  A process
that was started by itself has more of the libraries in memory than one that was forked from another with these loaded.
"""

import statistics

import torch
from torch import Tensor, nn

from trine.capture.model import make_model
from trine.cost.profile import ProcessSize
from trine.plan.plan import Plan
from trine.run.job import Job
from trine.run.memory import Usage
from trine.run.usage import usage_of_module, usage_of_processes

BATCH, CHANNELS, SIDE, WIDTH = 8, 64, 56, 1024


def mean(output: Tensor, targets: Tensor) -> Tensor:
    """A loss for anything."""
    return output.mean()


def small() -> tuple[nn.Module, Tensor]:
    """A net, and images for it, that need next to nothing."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 5))
    return net, torch.randn(BATCH, 3, 16, 16)


def measure_engine_base() -> int | None:
    """What the process of one engine has beside its tensors, measured; None where the system does not tell it."""
    job = job_of(*small(), training=True)
    plan = Plan(batch=job.batch)
    (found,) = usage_of_processes(job.compiled(plan).programs(), job, job.step(plan), job.optimizer)
    return None if found.resident is None else found.resident - found.tensors


def measure_process_size() -> ProcessSize | None:
    """Measured in fresh processes; None where the system does not tell a process's size."""
    base = used(*small(), training=True)
    if base.resident is None:
        return None
    image, conv = torch.randn(BATCH, CHANNELS, SIDE, SIDE), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
    cases: list[tuple[nn.Module, Tensor, bool]] = [
        (conv, image, True), (conv, image, False), (nn.Sequential(nn.BatchNorm2d(CHANNELS), nn.ReLU()), image, True),
        (nn.Linear(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH), True),
    ]  # fmt: skip
    growths = []
    for module, inputs, training in cases:
        found = used(module, inputs, training=training)
        assert found.resident is not None
        resting = sum(p.nbytes for p in module.parameters()) * (2 if training else 1)  # with the optimizer's moment
        growths.append((found.resident - base.resident - inputs.nbytes - resting) / (found.tensors - resting))
    return ProcessSize(base_bytes=base.resident - base.tensors, growth=max(statistics.mean(growths), 1.0))


def used(module: nn.Module, inputs: Tensor, *, training: bool) -> Usage:
    """What a step of one small module takes."""
    job = job_of(module, inputs, training=training)
    return usage_of_module(job, 1, job.optimizer)


def job_of(module: nn.Module, inputs: Tensor, *, training: bool) -> Job:
    """A module with a loss for anything."""
    return Job(make_model(module, inputs, torch.zeros(len(inputs), dtype=torch.long), loss=mean), training)
