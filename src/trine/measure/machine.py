"""What this machine is: cores, caches, memory, limits of its control group, GPUs; and the Cluster that it makes.

Read from Linux's /proc and /sys (control groups of version 1 and 2); where those are missing, from the Python library.
``root`` lets a test read another machine's files.
"""

import hashlib
import os
import platform
import re
from pathlib import Path

import msgspec
import torch

from trine.cluster.cluster import Cluster, Engine, Link, Shared, Tier
from trine.cluster.presets import PRESETS
from trine.cost.profile import Profile
from trine.errors import BadInput

ASSUMED_STREAM_BYTES_PER_S = 8e9
ASSUMED_LAUNCH_S = 5e-6
ASSUMED_THREAD_LATENCY_S = 25e-6
"""For a machine that was not calibrated: memory bandwidth of one core, an operator's start, an exchange of threads."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU: its name and memory, and the preset whose rates it has (None: not among the presets)."""

    name: str
    memory_bytes: int
    preset: str | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """``num_cores`` are those that this process may use, ``num_cores_online`` all there are; ``clock_hz`` as reported
    now, None if unknown; ``caches_bytes`` by level ("L2"), of one core or of the cores that share it;
    ``memory_bytes`` as limited by the control group; ``flops_per_cycle`` of one core in float32, from its instructions.
    """

    model_name: str
    num_cores: int
    num_cores_online: int
    clock_hz: float | None
    caches_bytes: dict[str, int]
    memory_bytes: int
    flops_per_cycle: int
    gpus: tuple[Gpu, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes when a measurement of this machine no longer holds: other cores, memory, GPUs or torch."""
        what = (self.model_name, self.num_cores, self.caches_bytes, self.memory_bytes // 2**28, self.gpus)
        text = msgspec.json.encode([what, str(torch.__version__), platform.machine()])
        return hashlib.sha256(text).hexdigest()[:16]

    def __str__(self) -> str:
        clock = f" at {self.clock_hz / 1e9:.2g} GHz" if self.clock_hz else ""
        gpus = "".join(f", {gpu.name}" for gpu in self.gpus)
        return f"{self.num_cores} x {self.model_name}{clock}{gpus}"


def read_machine(root: Path = Path("/")) -> Machine:
    """This machine, as far as this process may use it."""
    info = _cpu_info(_text(root / "proc/cpuinfo"))
    online = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else online
    quota = _cpu_quota(root)
    return Machine(
        model_name=info.get("model name") or info.get("Model") or platform.processor() or platform.machine(),
        num_cores=max(1, min(allowed, int(quota))) if quota else allowed,
        num_cores_online=online,
        clock_hz=_clock_hz(root, info),
        caches_bytes=_caches(root),
        memory_bytes=_memory_bytes(root),
        flops_per_cycle=_flops_per_cycle(info),
        gpus=_gpus(),
    )


def machine_cluster(
    machine: Machine, profile: Profile | None = None, *, num_engines: int | None = None, kind: str = "cpu-core"
) -> Cluster:
    """The machine's cores (or GPUs, ``kind="gpu"``) as a cluster of ``num_engines``; all of them if None.

    With a profile the rates are the measured ones, all cores busy; else peaks follow from clock and instructions, and
    bandwidth, launch and links are the assumptions above.  GPUs take the rates of their presets.
    Raises BadInput for more engines than there are.
    """
    there = machine.num_cores if kind == "cpu-core" else len(machine.gpus)
    count = there if num_engines is None else num_engines
    if not 1 <= count <= there:
        what = "cores" if kind == "cpu-core" else "GPUs"
        raise BadInput(
            f"{count} engines were asked for.", f"This machine has {there} {what} for trine.", "See `trine engines`."
        )
    if kind == "gpu":
        return _gpu_cluster(machine, count)
    return _core_cluster(machine, profile, count)


def _core_cluster(machine: Machine, profile: Profile | None, count: int) -> Cluster:
    if profile is None:
        single = (machine.clock_hz or 2e9) * machine.flops_per_cycle
        peaks = {"float64": single / 2, "float32": single}
        bandwidth, total = ASSUMED_STREAM_BYTES_PER_S, ASSUMED_STREAM_BYTES_PER_S * machine.num_cores
        launch, latency = ASSUMED_LAUNCH_S, ASSUMED_THREAD_LATENCY_S
    else:
        dtypes = profile.rates[0].matmul_flops_per_s
        peaks = {dtype: profile.rate("matmul", dtype, count) for dtype in dtypes}
        bandwidth = profile.rate("stream", "float32", 1)
        total = profile.rate("stream", "float32", machine.num_cores) * machine.num_cores
        launch, latency = profile.launch(count).forward_s, profile.table("threads", "p2p").times_s[0]
    core = Engine(
        name="core",
        kind="cpu-core",
        peak_flops_per_s=peaks,
        memory_bytes=machine.memory_bytes // machine.num_cores,
        memory_bandwidth_bytes_per_s=bandwidth,
        launch_s=launch,
    )
    link = Link(latency_s=latency, bandwidth_bytes_per_s=bandwidth)
    memory = Shared(
        name="memory", size=machine.num_cores, bandwidth_bytes_per_s=total, memory_bytes=machine.memory_bytes
    )
    return Cluster(
        name="this machine",
        engines=(core,) * count,
        tiers=(Tier(name="machine", size=max(2, machine.num_cores), link=link),),
        shared=(memory,),
    )


def _gpu_cluster(machine: Machine, count: int) -> Cluster:
    unknown = [gpu.name for gpu in machine.gpus if gpu.preset is None]
    if unknown:
        raise BadInput(
            f"The rates of {unknown[0]} are unknown.",
            "GPUs of these presets are known: " + ", ".join(PRESETS) + ".",
            "Give a TOML file with its rates: --cluster FILE.",
        )
    known = [(PRESETS[gpu.preset], gpu.memory_bytes) for gpu in machine.gpus[:count] if gpu.preset]
    engines = tuple(msgspec.structs.replace(preset.engine, memory_bytes=memory) for preset, memory in known)
    tier = known[0][0].tiers[0]
    return Cluster(
        name="this machine",
        engines=engines,
        tiers=(msgspec.structs.replace(tier, size=max(tier.size, len(engines))),),
    )


def _gpus() -> tuple[Gpu, ...]:
    if not torch.cuda.is_available():
        return ()
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    sizes = [(gpu.name, gpu.total_memory) for gpu in found]
    return tuple(Gpu(name=name, memory_bytes=size, preset=gpu_preset(name, size)) for name, size in sizes)


def gpu_preset(name: str, memory_bytes: int) -> str | None:
    """The preset of a GPU by the driver's name for it ("NVIDIA A100-SXM4-80GB") and its memory, or None.

    Only modules of the kind that the presets describe match: a PCIe card of the same chip is slower.
    """
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    for key, preset in PRESETS.items():
        chip = key.split("-")[0]
        near = 0.9 < memory_bytes / preset.engine.memory_bytes < 1.1
        if preset.engine.kind == "gpu" and chip in words and near and "pcie" not in words:
            return key
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_info(text: str) -> dict[str, str]:
    """The first value of each key of /proc/cpuinfo."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found


def _clock_hz(root: Path, info: dict[str, str]) -> float | None:
    highest = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest:
        return float(highest) * 1e3
    return float(info["cpu MHz"]) * 1e6 if "cpu MHz" in info else None


def _flops_per_cycle(info: dict[str, str]) -> int:
    """Of one core in float32: two multiply-add pipes of the widest vectors; 512-bit ones count as two of 256 bits
    except on Intel and on AMD from family 26, where they are full width."""
    flags = set((info.get("flags", "") + " " + info.get("Features", "")).split())
    full = info.get("vendor_id") == "GenuineIntel" or int(info.get("cpu family", "0")) >= 26
    if "avx512f" in flags and full:
        return 64
    if "avx2" in flags:
        return 32
    return 16 if {"avx", "asimd"} & flags else 8


def _caches(root: Path) -> dict[str, int]:
    """Sizes of the data and unified caches of the first core."""
    found = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KM]?)", _text(index / "size").strip())
        if size and _text(index / "type").strip() != "Instruction":
            found[f"L{_text(index / 'level').strip()}"] = int(size[1]) * {"": 1, "K": 2**10, "M": 2**20}[size[2]]
    return found


def _groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's control group and its parents for that controller; "" is version 2."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
            parts = [part for part in path.split("/") if part and part != ".."]
            return [base.joinpath(*parts[:i]) for i in range(len(parts), -1, -1)]
    return []


def _cpu_quota(root: Path) -> float | None:
    """The cores' worth of time that the control groups grant, or None for no limit."""
    found = []
    for folder in _groups(root, ""):
        words = _text(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
    for folder in _groups(root, "cpu"):
        quota, period = (_text(folder / f"cpu.cfs_{word}_us").strip() for word in ("quota", "period"))
        if quota and period and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found) if found else None


def _memory_bytes(root: Path) -> int:
    """The machine's memory, or the lowest limit of its control groups if that is less."""
    total = re.search(r"MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    found = [int(total[1]) * 1024 if total else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    names = [(folder / "memory.max") for folder in _groups(root, "")]
    names += [(folder / "memory.limit_in_bytes") for folder in _groups(root, "memory")]
    found += [int(text) for text in (_text(name).strip() for name in names) if text.isdigit()]
    return min(found)
