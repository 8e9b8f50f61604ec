"""Dropout follows the seed of the model, in a plan and on one engine alike."""

import torch
from torch import nn

from trine.capture.model import Model, make_model
from trine.plan.build import build
from trine.run.job import Job
from trine.run.judge import expected, judge


def seeded(seed: int) -> Model:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    return make_model(net, torch.ones(4, 6), torch.zeros(4, 3), nn.functional.mse_loss, seed=seed)


def test_another_seed_drops_other_elements_and_the_plan_the_same():
    losses = []
    for seed in (0, 7):
        job = Job(seeded(seed), training=True, float64=True)
        plan = build(job.graph(), data=2, batch=job.batch)
        reference = expected(job, plan, 1)
        losses.append(reference.steps[0].loss)
        assert judge(job, plan, num_steps=1, reference=reference).equal
    assert losses[0] != losses[1]
