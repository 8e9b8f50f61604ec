"""Presets: engines that one need not own, each number with where it is printed.

Rates are dense: a data sheet's "with sparsity" is halved.  A link's bandwidth is one direction of one engine: a data
sheet's "bidirectional" is halved.  What no maker prints (latencies, the cost of a launch) says what it is taken from;
"assumed" is a round guess.
"""

from math import ceil

import msgspec

from trine.cluster.cluster import Cluster, Engine, Link, Shared, Tier
from trine.errors import BadInput, UnknownName

T, G, US, GIB = 1e12, 1e9, 1e-6, 2**30


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of engine, how many come in one unit (cores of a board), how units are joined, and the sources.

    ``tiers`` are those of fixed size; ``network`` joins as many as there are.

    ``sources`` names, for each number, where it is printed; a number's name is its field, or the name of its tier.
    """

    engine: Engine
    tiers: tuple[Tier, ...]
    network: Link
    sources: dict[str, str]
    per_unit: int = 1
    shared: tuple[Shared, ...] = ()

    def times(self, count: int) -> Cluster:
        """``count`` units of it, joined."""
        if count < 1:
            raise BadInput(
                f"{count} times {self.engine.name} was asked for.", "It is 1 or more.", "Leave it out for 1."
            )
        num_engines = count * self.per_unit
        tiers: list[Tier] = []
        for tier in self.tiers:
            if tiers and tiers[-1].size >= num_engines:
                break
            tiers.append(tier)
        inner = tiers[-1].size if tiers else 1
        if inner < num_engines:
            tiers.append(Tier(name="network", size=inner * ceil(num_engines / inner), link=self.network))
        return Cluster(
            name=f"{self.engine.name}x{count}" if count > 1 else self.engine.name,
            engines=(self.engine,) * num_engines,
            tiers=tuple(tiers) if num_engines > 1 else (),
            shared=self.shared,
        )


def preset(name: str) -> Preset:
    """The preset of that name.  Raises UnknownName with the nearest."""
    if name not in PRESETS:
        raise UnknownName("cluster preset", name, PRESETS, change="Or give a TOML file.")
    return PRESETS[name]


def _tier(name: str, size: int, latency_s: float, bandwidth_bytes_per_s: float) -> Tier:
    return Tier(name=name, size=size, link=Link(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s))


_NVLINK_LATENCY = "latency: NCCL tuning.cc, one NVLink ring step, Simple protocol"
_NET_LATENCY = "latency: NCCL tuning.cc, one network ring step, Simple protocol"
_FITTED_LAUNCH = "fitted on the fp16 matrix products of Vidur (MIT licence)"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet (nvidia-1758950-r4)"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet, column H100 SXM"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet, column V100 SXM2"
_L4 = "NVIDIA L4 Tensor Core GPU data sheet"
_TPU = "docs.cloud.google.com/tpu/docs/v5e"
_PI = "Raspberry Pi 5 product brief"


def _a100(memory_gib: int, bandwidth_bytes_per_s: float, printed: str) -> Preset:
    return Preset(
        engine=Engine(
            name=f"a100-{memory_gib}gb",
            kind="gpu",
            peak_flops_per_s={
                "float64": 9.7 * T, "float32": 19.5 * T, "tfloat32": 156 * T, "float16": 312 * T,
                "bfloat16": 312 * T, "int8": 624 * T,
            },
            memory_bytes=memory_gib * GIB,
            memory_bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            launch_s=5.2 * US,
        ),
        tiers=(_tier("node", 8, 3.4 * US, 300 * G),),
        network=Link(latency_s=14 * US, bandwidth_bytes_per_s=25 * G),
        sources={
            "peak_flops_per_s": f"{_A100}: 9.7, 19.5, 156, 312, 312 TFLOPS, 624 TOPS",
            "memory_bytes": f"{_A100}: {memory_gib} GB in five stacks, binary",
            "memory_bandwidth_bytes_per_s": f"{_A100}: {printed}",
            "launch_s": _FITTED_LAUNCH,
            "node": f"bandwidth: {_A100}, NVLink 600 GB/s both ways; 8 GPUs: DGX A100 data sheet; {_NVLINK_LATENCY}",
            "network": f"bandwidth: NVIDIA DGX A100 data sheet, one 200 Gb/s adapter a GPU; {_NET_LATENCY}",
        },
    )  # fmt: skip


_PRESETS = (
    _a100(40, 1555 * G, "1,555 GB/s"),
    _a100(80, 2039 * G, "2,039 GB/s"),
    Preset(
        engine=Engine(
            name="h100-80gb",
            kind="gpu",
            peak_flops_per_s={
                "float64": 34 * T, "float32": 67 * T, "tfloat32": 494.5 * T, "float16": 989.5 * T,
                "bfloat16": 989.5 * T, "float8": 1979 * T, "int8": 1979 * T,
            },
            memory_bytes=80 * GIB,
            memory_bandwidth_bytes_per_s=3350 * G,
            launch_s=5.5 * US,
        ),
        tiers=(_tier("node", 8, 3.4 * US, 450 * G),),
        network=Link(latency_s=14 * US, bandwidth_bytes_per_s=50 * G),
        sources={
            "peak_flops_per_s": f"{_H100}: 34, 67 and, with sparsity, 989, 1,979, 1,979, 3,958 TFLOPS, 3,958 TOPS",
            "memory_bytes": f"{_H100}: 80 GB in five stacks, binary",
            "memory_bandwidth_bytes_per_s": f"{_H100}: 3.35 TB/s",
            "launch_s": _FITTED_LAUNCH,
            "node": f"bandwidth: {_H100}, NVLink 900 GB/s both ways; 8 GPUs: DGX H100 data sheet; {_NVLINK_LATENCY}",
            "network": f"bandwidth: NVIDIA DGX H100 data sheet, one 400 Gb/s adapter a GPU; {_NET_LATENCY}",
        },
    ),
    Preset(
        engine=Engine(
            name="v100-32gb",
            kind="gpu",
            peak_flops_per_s={"float64": 7.8 * T, "float32": 15.7 * T, "float16": 125 * T},
            memory_bytes=32 * GIB,
            memory_bandwidth_bytes_per_s=900 * G,
            launch_s=5 * US,
        ),
        tiers=(_tier("node", 8, 3.4 * US, 150 * G),),
        network=Link(latency_s=14 * US, bandwidth_bytes_per_s=6.25 * G),
        sources={
            "peak_flops_per_s": f"{_V100}: 7.8, 15.7, 125 TFLOPS",
            "memory_bytes": f"{_V100}: 32 GB in four stacks, binary",
            "memory_bandwidth_bytes_per_s": f"{_V100}: 900 GB/s",
            "launch_s": "assumed",
            "node": f"bandwidth: {_V100}, NVLink 300 GB/s both ways; 8 GPUs: DGX-1 data sheet; {_NVLINK_LATENCY}",
            "network": f"bandwidth: NVIDIA DGX-1 data sheet, four 100 Gb/s adapters for 8 GPUs; {_NET_LATENCY}",
        },
    ),
    Preset(
        engine=Engine(
            name="l4",
            kind="gpu",
            peak_flops_per_s={
                "float32": 30.3 * T, "tfloat32": 60 * T, "float16": 121 * T, "bfloat16": 121 * T,
                "float8": 242.5 * T, "int8": 242.5 * T,
            },
            memory_bytes=24 * 10**9,
            memory_bandwidth_bytes_per_s=300 * G,
            launch_s=5 * US,
        ),
        tiers=(_tier("host", 8, 5.7 * US, 32 * G),),
        network=Link(latency_s=14 * US, bandwidth_bytes_per_s=1.5625 * G),
        sources={
            "peak_flops_per_s": f"{_L4}: 30.3 and, with sparsity, 120, 242, 242, 485 TFLOPS, 485 TOPS",
            "memory_bytes": f"{_L4}: 24 GB",
            "memory_bandwidth_bytes_per_s": f"{_L4}: 300 GB/s",
            "launch_s": "assumed",
            "host": f"bandwidth: {_L4}, PCIe 64 GB/s both ways; 8 GPUs: assumed; NCCL tuning.cc, PCIe step",
            "network": f"assumed: 100 Gb/s for 8 GPUs; {_NET_LATENCY}",
        },
    ),
    Preset(
        engine=Engine(
            name="tpu-v5e",
            kind="tpu",
            peak_flops_per_s={"bfloat16": 197 * T, "int8": 393 * T},
            memory_bytes=16 * 10**9,
            memory_bandwidth_bytes_per_s=819 * G,
            launch_s=5 * US,
        ),
        tiers=(_tier("pod", 256, 1 * US, 200 * G),),
        network=Link(latency_s=14 * US, bandwidth_bytes_per_s=3.125 * G),
        sources={
            "peak_flops_per_s": f"{_TPU}: 197 TFLOPs, 393 TOPs",
            "memory_bytes": f"{_TPU}: 16 GB",
            "memory_bandwidth_bytes_per_s": f"{_TPU}: 819 GBps",
            "launch_s": "assumed",
            "pod": f"bandwidth: {_TPU}, 400 GBps both ways over four ports; 256 chips; latency: assumed",
            "network": f"bandwidth: {_TPU}, 6.4 Tbps a pod of 256; latency: assumed as for GPUs",
        },
    ),
    Preset(
        engine=Engine(
            name="raspberry-pi-5",
            kind="cpu-core",
            peak_flops_per_s={"float32": 38.4 * G, "float16": 76.8 * G, "float64": 19.2 * G},
            memory_bytes=2 * GIB,
            memory_bandwidth_bytes_per_s=17.068 * G,
            launch_s=20 * US,
        ),
        per_unit=4,
        tiers=(_tier("board", 4, 50 * US, 8.534 * G),),
        network=Link(latency_s=200 * US, bandwidth_bytes_per_s=0.125 * G),
        shared=(Shared(name="memory", size=4, bandwidth_bytes_per_s=17.068 * G, memory_bytes=8 * GIB),),
        sources={
            "peak_flops_per_s": f"{_PI}: Cortex-A76 at 2.4 GHz; two 128-bit multiply-add pipes (Arm Cortex-A76 Software"
            " Optimization Guide)",
            "memory_bytes": f"{_PI}: the 8 GB board, a quarter for each of 4 cores",
            "memory_bandwidth_bytes_per_s": f"{_PI}: LPDDR4X-4267, 32 bits wide (Raspberry Pi 5 announcement)",
            "launch_s": "assumed",
            "memory": f"{_PI}: 8 GB; LPDDR4X-4267, 32 bits wide, for all cores",
            "board": "assumed: two threads and a queue; a message is read and written once in shared memory",
            "network": f"bandwidth: {_PI}, Gigabit Ethernet; latency: assumed",
        },
    ),
)  # fmt: skip

PRESETS = {preset_.engine.name: preset_ for preset_ in _PRESETS}
