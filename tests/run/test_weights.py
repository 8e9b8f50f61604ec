"""A micro-batch weighs by its rows, or by its tokens where the loss is a mean over tokens."""

import pytest
import torch
from tests.run.nets import BATCH, job, plan


def test_samples() -> None:
    assert job("net").step(plan("net", "1f1b")).weights == (2 / 5, 1 / 5, 1 / 5, 1 / 5)


def test_tokens() -> None:
    made = job("language")
    labels = made.inputs.targets
    counted = [int((part != -100).sum()) for part in torch.split(labels, [2, 1, 1, 1])]
    assert made.step(plan("language", "1f1b")).weights == pytest.approx([n / sum(counted) for n in counted])
    assert len(labels) == BATCH


def test_sums() -> None:
    assert job("whole").step(plan("whole", "1f1b")).weights == (1.0,) * 4
