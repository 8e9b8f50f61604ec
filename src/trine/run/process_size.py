"""The size of a process that runs tensors, from single operators: none of them is of the model that is compared.

A process grows by more than its live tensors.  glibc's aligned allocation, which torch uses, does not take a freed
block of exactly the size that is asked for: a thread that makes and drops one tensor of 25 MB four times stands at 26,
50, 75 and 99 MB (glibc 2.36), whatever its thresholds.  And oneDNN copies what it convolves while it works.
"""

import statistics

import torch
from torch import Tensor, nn

from trine.capture.model import make_model
from trine.cost.profile import ProcessSize
from trine.run.job import Job
from trine.run.usage import Usage, usage_of_module

BATCH, CHANNELS, SIDE, WIDTH = 8, 64, 56, 1024


def mean(output: Tensor, targets: Tensor) -> Tensor:
    """A loss for anything."""
    return output.mean()


def measure_process_size() -> ProcessSize | None:
    """Measured in fresh processes; None where the system does not tell a process's size."""
    small = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 5)
    )
    base = used(small, torch.randn(BATCH, 3, 16, 16), training=True)
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
    model = make_model(module, inputs, torch.zeros(len(inputs), dtype=torch.long), loss=mean)
    job = Job(model, training)
    return usage_of_module(job, 1, job.optimizer)
