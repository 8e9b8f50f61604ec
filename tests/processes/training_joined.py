"""A script for torchrun: ``training_joined.py FILE KIND`` trains a small net on the processes that are there."""

import os
import sys
from pathlib import Path

import torch
from tests.run.small import images, net
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.errors import BadInput
from trine.plan.build import build
from trine.run.optimizer import OptimizerSpec
from trine.run.training import train_step

if __name__ == "__main__":
    file, kind = sys.argv[1:]
    rank = int(os.environ["RANK"])
    x, y = images(4)
    graph = capture(make_model(net(), x, y, functional.cross_entropy), training=True, with_loss=True).graph
    plan = build(graph, data=3 if kind == "three" else 2, batch=4)
    module = net()
    if kind == "weights" and rank == 1:
        torch.nn.init.zeros_(module.stem.weight)
    told = ""
    losses = []
    try:
        with train_step(
            module, plan, loss=functional.cross_entropy, optimizer=OptimizerSpec("sgd", lr=0.1), inputs=x, targets=y
        ) as step:
            for number in range(3):
                losses.append(float(step(images(4, number + 10 * rank if kind == "batches" else number))))
            weights = step.state_dict()
            torch.save({"losses": losses, "weights": weights}, Path(f"{file}.{rank}"))
    except BadInput as error:
        told = str(error)
    Path(f"{file}.{rank}.said").write_text(told)
