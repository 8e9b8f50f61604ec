"""`make lab-decode`: an image decoder on engines that are each too small for it.

    python -m bench.lab.decode [--latents 64] [--engines 4] [--share 0.8]

diffusers' AutoencoderKL (128, 256, 512, 512 channels, two layers a block), decoding one latent of 4 channels.  The
whole decoder runs in a process of its own, in a memory cgroup that counts its need (so root is needed).  Then every
process may have that share of the need: one engine is shown to be killed, four with tiles by height are not, and their
image is held against the whole's.  Predicted memory stands beside measured.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import diffusers
import torch
from bench.lab.cluster import remove_group
from torch import Tensor, nn

from trine.capture.model import make_model
from trine.cost.profile import cache_directory
from trine.measure.calibrate import calibrate
from trine.measure.machine import read_machine
from trine.plan.build import build
from trine.plan.plan import Plan
from trine.report.footing import of_engine, with_process_size
from trine.run.job import Job
from trine.run.memory import Usage
from trine.run.processes import Processes
from trine.run.usage import usage_of_processes
from trine.units import BYTES

CONFIG = {
    "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip
GROUPS = Path("/sys/fs/cgroup/memory")
TOLERANCE = 1e-5  # of the image's norm, in float32
TENSORS_ERROR, RESIDENT_ERROR = 0.10, 0.20  # of predicted memory
CHILD = "--whole"


class Decoder(nn.Module):
    """From latents to an image."""

    def __init__(self) -> None:
        super().__init__()
        whole = diffusers.AutoencoderKL(**CONFIG)
        self.before, self.decoder = whole.post_quant_conv, whole.decoder

    def forward(self, latents: Tensor) -> Tensor:
        return self.decoder(self.before(latents))


def made(latents: int) -> tuple[Decoder, Tensor]:
    """The decoder and its input, the same in every process."""
    torch.manual_seed(0)
    return Decoder().eval(), torch.randn(1, 4, latents, latents)


def whole(latents: int, file: str) -> None:
    """In a process of its own: decode, and keep the image and the highest resident size."""
    torch.set_num_threads(1)
    module, x = made(latents)
    with torch.no_grad():
        image = module(x)
    torch.save({"image": image}, file)


@contextmanager
def limited(limit: int | None, name: str) -> Iterator[Path]:
    """A memory cgroup with a limit, removed afterwards."""
    group = GROUPS / f"trine-{os.getpid()}-{name}"
    group.mkdir()
    if limit is not None:
        (group / "memory.limit_in_bytes").write_text(str(limit))
    try:
        yield group
    finally:
        remove_group(group)


def run_whole(latents: int, file: Path, limit: int | None = None) -> tuple[int, int]:
    """The exit status of the whole decoder in a process, within a limit from its start, and the most bytes it had."""
    command = [sys.executable, "-m", "bench.lab.decode", CHILD, str(latents), str(file)]
    with limited(limit, "whole") as group:
        enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
        status = subprocess.run(command, check=False, preexec_fn=enter, stderr=subprocess.DEVNULL).returncode
        return status, most_bytes(group)


def most_bytes(group: Path) -> int:
    """The most that a cgroup had."""
    return int((group / "memory.max_usage_in_bytes").read_text())


def run_tiles(job: Job, plan: Plan, limit: int) -> tuple[Tensor, list[int], list[Usage]]:
    """The image from a plan on processes within the limit each; the most bytes of their groups; and what each took."""
    programs, step = job.compiled(plan).programs(), job.step(plan)
    with Processes(programs, job.state()) as running:
        assert running.supervisor is not None
        pids = [process.pid for process in running.supervisor.processes]
        with ExitStack() as stack:
            groups, before = [], []
            for rank, pid in enumerate(pids):  # what a process has already stays where it was counted
                before.append(int(_field(Path(f"/proc/{pid}/status"), "RssAnon")) * 1024)
                groups.append(stack.enter_context(limited(limit - before[-1], str(rank))))
                (groups[-1] / "cgroup.procs").write_text(str(pid))
            results = running.step(step).results
            running.close()
            had = [most_bytes(group) + known for group, known in zip(groups, before, strict=True)]
    return next(iter(results.values())), had, usage_of_processes(programs, job, step, None, num_steps=1)


def _field(path: Path, name: str) -> str:
    return next(line.split()[1] for line in path.read_text().splitlines() if line.startswith(name + ":"))


def main(arguments: Sequence[str] | None = None) -> int:
    """0: one engine was killed, the tiles were not, the image is the same, and memory was predicted within the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latents", type=int, default=64)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.8)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trine-") as folder:
        file = Path(folder) / "whole"
        status, need = run_whole(options.latents, file)
        assert status == 0
        kept = torch.load(file, weights_only=True)
        limit = int(options.share * need)
        print(f"the whole decoder needs {BYTES.format(need)}; every process may have {BYTES.format(limit)}", flush=True)
        status, _ = run_whole(options.latents, file, limit)
        killed = status == -signal.SIGKILL
        print(f"one engine within that: {'killed' if killed else f'ended with {status}'}", flush=True)
    module, x = made(options.latents)
    job = Job(make_model(module, x), False)
    profile = calibrate(cache_directory(os.environ, Path.home()), machine=read_machine())
    profile = with_process_size(profile, print, "processes")
    plan = build(job.graph(), tensor=(options.engines,), cuts=("height",), batch=1)
    told = [of_engine(program, 0.0, profile) for program in job.compiled(plan).programs()]  # before anything runs
    image, had, found = run_tiles(job, plan, limit)
    apart = float((image - kept["image"]).norm() / kept["image"].norm())
    print(f"{options.engines} engines within that: done, {apart:.1e} from the whole")
    good = killed and apart <= TOLERANCE and max(had) <= limit
    for rank, (most, (tensors, resident), usage) in enumerate(zip(had, told, found, strict=True)):
        assert resident is not None
        assert usage.resident is not None
        errors = tensors / usage.tensors - 1, resident / usage.resident - 1
        good = good and abs(errors[0]) <= TENSORS_ERROR and abs(errors[1]) <= RESIDENT_ERROR
        print(
            f"  engine {rank}: had {BYTES.format(most)}; tensors predicted {BYTES.format(tensors)}, measured "
            f"{BYTES.format(usage.tensors)} ({errors[0]:+.0%}); resident predicted {BYTES.format(resident)}, measured "
            f"{BYTES.format(usage.resident)} ({errors[1]:+.0%})"
        )
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        whole(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
