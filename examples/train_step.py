"""A pipeline of two stages, through which a batch streams in four micro-batches."""

import torch
from torch import nn
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.plan.build import build
from trine.run.optimizer import OptimizerSpec
from trine.run.training import train_step

torch.manual_seed(0)
module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
inputs, targets = torch.randn(8, 16), torch.randint(0, 10, (8,))

one = make_model(module, inputs[:2], targets[:2], functional.cross_entropy)  # a plan speaks of one micro-batch
graph = capture(one, training=True, with_loss=True).graph
plan = build(graph, stages=2, micro_batches=4, batch=8)

adam = OptimizerSpec("adam", lr=0.01)
with train_step(
    module, plan, loss=functional.cross_entropy, optimizer=adam, inputs=inputs, targets=targets
) as step:  # fmt: skip
    losses = [step((inputs, targets)).item() for _ in range(5)]
    losses.append(step((inputs[:3], targets[:3])).item())  # a last, smaller batch
    module.load_state_dict(step.state_dict())

print(f"{plan.describe()}: losses {', '.join(f'{loss:.3f}' for loss in losses)}")
assert losses[4] < losses[0]
