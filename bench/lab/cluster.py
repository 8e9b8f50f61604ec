"""A cluster on one Linux machine: engines of chosen speed and memory, joined by links of chosen rate.

    python -m bench.lab.cluster --speeds 2:1 --link 1gbit -- python train.py
    python -m bench.lab.cluster --speeds 1:1:1:1 --per-host 2 --link 10gbit --between 500mbit -- python train.py

Each engine is a network namespace with an address of its own, and a CPU quota and a memory limit (cgroup v1) for all
that runs in it; engines of a host hang on one bridge, hosts are joined by a link of their own, all shaped by token
buckets (tc tbf) in both directions.  COMMAND runs once in every engine, with what torch.distributed reads from its
environment as under torchrun.  The first failure ends all; everything is removed at the end.  Needs root.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 20_000  # of the CPU quota: short beside a training step
LONGEST_NAME = 15  # of a network device
PORT = 29_500


@dataclass(frozen=True)
class Lab:
    """speeds: of the engines, where 1 is a whole core; memory_bytes: of each, None: no limit; link, between: rates of
    an engine's link and of the one between hosts, as tc writes them, empty: as fast as it goes."""

    speeds: tuple[float, ...]
    memory_bytes: int | None = None
    link: str = ""
    per_host: int = 0
    between: str = ""

    @property
    def num_engines(self) -> int:
        return len(self.speeds)

    def host(self, rank: int) -> int:
        """The host of an engine."""
        return rank // self.per_host if self.per_host else 0

    @property
    def num_hosts(self) -> int:
        return self.host(self.num_engines - 1) + 1


def address(rank: int) -> str:
    """The address of an engine."""
    return f"10.77.0.{rank + 1}"


def ip(*words: str) -> None:
    """One command of iproute2.  Raises RuntimeError with what it says."""
    tool = ["tc", *words[1:]] if words[0] == "tc" else ["ip", *words]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(tool)}: {done.stderr.strip()}")


class Up:
    """A lab that is up; ``stack`` holds what removes it."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab, self.stack = lab, stack
        self.name = f"tl{os.getpid() % 100_000}"
        self.groups: list[list[Path]] = []
        for host in range(lab.num_hosts):
            self.device(f"{self.name}b{host}", "type", "bridge")
            if host:
                self.join(host)
        for rank in range(lab.num_engines):
            self.engine(rank)

    def device(self, name: str, *kind: str) -> None:
        """A network device that goes with the lab."""
        assert len(name) <= LONGEST_NAME
        ip("link", "add", name, *kind)
        self.stack.callback(subprocess.run, ["ip", "link", "del", name], capture_output=True, check=False)
        ip("link", "set", name, "up")

    def shape(self, device: str, rate: str, inside: str = "") -> None:
        """Let a device send no faster than a rate."""
        if rate:
            where = ["-n", inside] if inside else []
            ip(
                "tc",
                *where,
                "qdisc",
                "add",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "256kb",
                "latency",
                "50ms",
            )

    def join(self, host: int) -> None:
        """The link from the first host's bridge to another's."""
        near, far = f"{self.name}x{host}", f"{self.name}y{host}"
        self.device(near, "type", "veth", "peer", "name", far)
        for end, at in ((near, 0), (far, host)):
            ip("link", "set", end, "master", f"{self.name}b{at}", "up")
            self.shape(end, self.lab.between)

    def engine(self, rank: int) -> None:
        """A namespace on its host's bridge, and its control groups."""
        inside, outer = f"{self.name}e{rank}", f"{self.name}v{rank}"
        ip("netns", "add", inside)
        self.stack.callback(subprocess.run, ["ip", "netns", "del", inside], capture_output=True, check=False)
        self.device(outer, "type", "veth", "peer", "name", "eth0", "netns", inside)
        ip("link", "set", outer, "master", f"{self.name}b{self.lab.host(rank)}", "up")
        ip("-n", inside, "addr", "add", f"{address(rank)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", inside, "link", "set", device, "up")
        self.shape(outer, self.lab.link)
        self.shape("eth0", self.lab.link, inside)
        self.groups.append(list(self.limits(inside, rank)))

    def limits(self, name: str, rank: int) -> Iterator[Path]:
        """Control groups with the engine's quota and memory."""
        quota = round(self.lab.speeds[rank] * PERIOD_US)
        yield self.group("cpu", name, {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota})
        if self.lab.memory_bytes is not None:
            yield self.group("memory", name, {"memory.limit_in_bytes": self.lab.memory_bytes})

    def group(self, kind: str, name: str, values: Mapping[str, int]) -> Path:
        """One control group, removed when its last process is gone."""
        group = CGROUPS / kind / name
        group.mkdir()
        self.stack.callback(remove_group, group)
        for key, value in values.items():
            (group / key).write_text(str(value))
        return group

    def start(self, rank: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """A command in an engine."""
        env = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(self.lab.num_engines),
            "MASTER_ADDR": address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "eth0",
            "TORCHELASTIC_RUN_ID": self.name, "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        enter = "; ".join(f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}" for group in self.groups[rank])
        inside = ["sh", "-c", f'{enter}; exec ip netns exec "$@"', "sh", f"{self.name}e{rank}", *command]
        return subprocess.Popen(inside, env=env, start_new_session=True)

    def run(self, command: Sequence[str]) -> int:
        """The command in every engine; the status of the first that failed, which ends the others."""
        running = {rank: self.start(rank, command) for rank in range(self.lab.num_engines)}
        try:
            while running:
                for rank, process in list(running.items()):
                    status = process.poll()
                    if status is None:
                        continue
                    del running[rank]
                    if status:
                        print(f"engine {rank} ended with status {status}", file=sys.stderr)
                        return status if status > 0 else 128 - status
                time.sleep(0.05)
            return 0
        finally:
            for process in running.values():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def remove_group(group: Path) -> None:
    """Remove a control group when its last process is gone."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:  # its last process is still leaving
            time.sleep(0.05)


@contextmanager
def up(lab: Lab) -> Iterator[Up]:
    """A lab, for as long as the block runs.  Raises RuntimeError where it cannot be made."""
    with ExitStack() as stack:
        yield Up(lab, stack)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's status; 2 where the lab cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speeds", default="1:1", help="of the engines, 1 is a whole core; 2:1 means 1 and 0.5")
    parser.add_argument("--memory", type=int, metavar="MB", help="of each engine")
    parser.add_argument("--link", default="", metavar="RATE", help="of an engine, 1gbit for instance")
    parser.add_argument("--per-host", type=int, default=0, metavar="N", help="engines of one host; else all are on one")
    parser.add_argument("--between", default="", metavar="RATE", help="between hosts")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = [word for word in options.command if word != "--"]
    speeds = [float(word) for word in options.speeds.split(":")]
    lab = Lab(
        tuple(speed / max(speeds) for speed in speeds), options.memory * 2**20 if options.memory else None,
        options.link, options.per_host, options.between,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() or not (CGROUPS / "cpu").is_dir() or not command:
        print("It needs root, control groups of version 1, iproute2, and a COMMAND behind --.", file=sys.stderr)
        return 2
    try:
        with up(lab) as running:
            return running.run(command)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
