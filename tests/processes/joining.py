"""A script for torchrun: ``joining.py PLAN FILE`` joins the processes that are there; engine 0 writes the outcome."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from tests.processes.cases import case

from trine.run.joined import Joined

if __name__ == "__main__":
    plan, file = sys.argv[1:]
    rank = int(os.environ["RANK"])
    joining = case(plan)
    with Joined(joining.programs[rank], joining.state, joining.optimizer) as engine:
        wholes = [engine.step(step) for step in joining.steps]
        assert engine.bytes_received == wholes[-1].bytes_sent
        if rank == 0:
            torch.save([asdict(whole) for whole in wholes], Path(file))
