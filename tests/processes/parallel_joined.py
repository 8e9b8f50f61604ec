"""A script for torchrun: ``parallel_joined.py FILE CUT KIND`` trains a small net with torch's own loop, as one module
on the processes that are there."""

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
from trine.run.parallelize import parallelize

if __name__ == "__main__":
    file, cut, kind = sys.argv[1:]
    rank = int(os.environ["RANK"])
    x, y = images(4)
    graph = capture(make_model(net(), x), training=True, with_loss=False).graph
    plan = build(graph, stages=2, batch=4) if cut == "stages" else build(graph, tensor=(2,), cuts=(cut,), batch=4)
    module = net()
    if kind == "weights" and rank == 1:
        torch.nn.init.zeros_(module.stem.weight)
    told, losses, gradient = "", [], torch.empty(0)
    try:
        parallel = parallelize(module, plan, inputs=x)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for number in range(3):
            x, y = images(4, number + 10 * rank if kind == "batches" else number)
            optimizer.zero_grad()
            x.requires_grad_()
            loss = functional.cross_entropy(parallel(x), y) + 0.1 * parallel(x).square().mean()  # two calls at once
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            gradient = x.grad
        parallel.eval()
        with torch.no_grad():
            output = parallel(x)
        found = {"losses": losses, "weights": dict(module.state_dict()), "gradient": gradient, "output": output}
        torch.save(found, Path(f"{file}.{rank}"))
    except BadInput as error:
        told = str(error)
    Path(f"{file}.{rank}.said").write_text(told)
