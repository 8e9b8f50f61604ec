"""Bytes on the wire beside those that trine counts and predicts, by the loopback's own counter in a network apart."""

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from bench.verify_cells import PLANS as ALL
from bench.verify_cells import SUBJECTS, Subject, make_job, make_plan

from trine.run.job import Job
from trine.run.processes import Processes
from trine.simulate.volume import bytes_sent

MEGABYTE = 1e6
JUDGED_BYTES = 10 * MEGABYTE  # of a step; smaller ones are shown, not judged: headers weigh more in them
TOLERANCE = 0.10
PLANS = ("data 2", "1f1b 2", "space 2", "features 2", "data 2 x space 2", "data 2 x features 2")
MODELS = {"resnet18": replace(SUBJECTS["resnet18"], size=128), "gpt2": SUBJECTS["gpt2"]}
UP = 'ip link set lo up && exec "$@"'


@dataclass(frozen=True)
class Row:
    """Bytes of one step of a plan, of all engines together."""

    name: str
    plan: str
    predicted: float
    counted: float
    on_the_wire: float

    @property
    def ratio(self) -> float:
        return self.on_the_wire / self.predicted if self.predicted else float("inf")

    @property
    def judged(self) -> bool:
        return max(self.predicted, self.on_the_wire) > JUDGED_BYTES

    @property
    def agrees(self) -> bool:
        return self.predicted == self.counted and (not self.judged or abs(self.ratio - 1) <= TOLERANCE)

    def __str__(self) -> str:
        """A line of the table."""
        sizes = "".join(f"{size / MEGABYTE:10.3f}" for size in (self.predicted, self.counted, self.on_the_wire))
        ratio = f"{self.ratio:8.4f}" if self.predicted else f"{'–':>8s}"
        return f"{self.name:20s}{self.plan:52s}{sizes}{ratio}{'' if self.agrees else '  OFF'}"


def apart() -> list[str]:
    """The start of a command that runs in a network of its own, which ends with it; a user needs a namespace too."""
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", *who, "sh", "-c", UP, "sh"]


def refusal() -> str:
    """Why there can be no network apart; empty if there can."""
    try:
        done = subprocess.run([*apart(), "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"A network of its own is made with unshare and ip (util-linux, iproute2): {error}."
    if done.returncode == 0:
        return ""
    return (
        f"A network of its own cannot be made here: {done.stderr.strip()}. Linux allows it to root with CAP_SYS_ADMIN, "
        "and to users where unprivileged namespaces are allowed. Run it as root."
    )


def loopback_bytes() -> int:
    """Bytes that the loopback of this network has sent, headers included."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    raise RuntimeError("this network has no loopback")


def measure(name: str, job: Job, plan_name: str, num_steps: int) -> Row:
    """Run steps of a plan on processes and read both counters around them."""
    plan = make_plan(plan_name, job)
    programs = job.compiled(plan).programs()
    step = job.step(plan)
    with Processes(programs, job.state(), job.optimizer, start_method="forkserver", timeout_s=300.0) as engines:
        before = sum(engines.step(step, tensors=False).bytes_sent)  # the first step also makes connections
        start = loopback_bytes()
        for _ in range(num_steps):
            counted = sum(engines.step(step, tensors=False).bytes_sent)
        wire = loopback_bytes() - start
    predicted = sum(bytes_sent(program) for program in programs)
    return Row(name, plan.describe(), predicted, (counted - before) / num_steps, wire / num_steps)


def rows(models: dict[str, Subject], plans: Sequence[str], batch: int, num_steps: int) -> bool:
    """Print the table; whether all agree."""
    good = True
    print(f"{'MB a step, of all engines':72s}{'predicted':>10s}{'counted':>10s}{'wire':>10s}{'ratio':>8s}")
    for model, subject in models.items():
        for training in (True, False):
            job = make_job(subject, batch, training=training)
            for plan in plans:
                row = measure(f"{model} {'training' if training else 'inference'}", job, plan, num_steps)
                print(row, flush=True)
                good = good and row.agrees
    return good


def main(arguments: Sequence[str]) -> int:
    """0: all steps over 10 MB are within a tenth; 1: one is not; 2: there can be no network apart."""
    parser = argparse.ArgumentParser(prog="python -m bench.lab.loopback", description=__doc__)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=tuple(MODELS))
    parser.add_argument("--plan", nargs="+", choices=ALL, default=PLANS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.inside:
        if reason := refusal():
            print(reason, file=sys.stderr)
            return 2
        command = [*apart(), sys.executable, "-m", "bench.lab.loopback", "--inside", *arguments]
        os.execvp(command[0], command)  # the same process: nothing is left that could outlive it
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    good = rows({name: MODELS[name] for name in options.model}, options.plan, options.batch, options.steps)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
