"""A script that trains until it is interrupted; prints its engines' process numbers first.  Two ranks."""

import sys

from tests.processes.cases import case

from trine.run.processes import Processes

if __name__ == "__main__":
    endless = case("data", num_steps=1)
    with Processes(endless.programs, endless.state, endless.optimizer, start_method=sys.argv[1]) as engines:
        engines.step(endless.steps[0])
        print(engines.folder.name, *(process.pid for process in engines.supervisor.processes), flush=True)
        while True:
            engines.step(endless.steps[0], tensors=False)
