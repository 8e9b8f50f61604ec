"""Machines read from their files, and the clusters that they make."""

import msgspec
import pytest

from trine.errors import BadInput
from trine.measure.machine import Gpu, Machine, gpu_preset, machine_cluster, read_machine

MACHINE = Machine(
    model_name="round",
    num_cores=4,
    num_cores_online=8,
    clock_hz=1e9,
    caches_bytes={"L2": 2**20},
    memory_bytes=2**33,
    flops_per_cycle=32,
)


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_this_machine():
    machine = read_machine()
    assert 1 <= machine.num_cores <= machine.num_cores_online
    assert machine.memory_bytes > 2**28
    assert machine.fingerprint == read_machine().fingerprint


def test_without_any_file(tmp_path):
    machine = read_machine(tmp_path)
    assert machine.num_cores >= 1
    assert machine.clock_hz is None
    assert machine.caches_bytes == {}


def test_control_groups_of_version_2_limit_through_their_parents(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
            "sys/fs/cgroup/outer/inner/memory.max": "1073741824\n",
            "sys/fs/cgroup/outer/memory.max": "max\n",
            "proc/meminfo": "MemTotal:       8388608 kB\n",
        },
    )
    machine = read_machine(tmp_path)
    assert machine.num_cores == 1
    assert machine.memory_bytes == 2**30


def test_control_groups_of_version_1(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
            "proc/meminfo": "MemTotal:       4194304 kB\n",
        },
    )
    machine = read_machine(tmp_path)
    assert machine.num_cores == 1
    assert machine.memory_bytes == 2**32


def test_caches_and_clock(tmp_path):
    cache = "sys/devices/system/cpu/cpu0/cache"
    levels = {"index0": ("1", "Data", "32K"), "index1": ("1", "Instruction", "64K"), "index3": ("3", "Unified", "32M")}
    for index, (level, kind, size) in levels.items():
        names = {"level": level, "type": kind, "size": size}
        write(tmp_path, {f"{cache}/{index}/{name}": text + "\n" for name, text in names.items()})
    write(tmp_path, {"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "2400000\n"})
    machine = read_machine(tmp_path)
    assert machine.caches_bytes == {"L1": 2**15, "L3": 2**25}
    assert machine.clock_hz == 2.4e9


@pytest.mark.parametrize(
    ("info", "flops"),
    [
        ("vendor_id : GenuineIntel\ncpu family : 6\nflags : avx avx2 avx512f\n", 64),
        ("vendor_id : AuthenticAMD\ncpu family : 25\nflags : avx avx2 avx512f\n", 32),
        ("vendor_id : AuthenticAMD\ncpu family : 26\nflags : avx avx2 avx512f\n", 64),
        ("vendor_id : GenuineIntel\ncpu family : 6\nflags : avx avx2\n", 32),
        ("Features : fp asimd\n", 16),
        ("", 8),
    ],
)
def test_width_of_the_vectors(tmp_path, info, flops):
    write(tmp_path, {"proc/cpuinfo": info})
    assert read_machine(tmp_path).flops_per_cycle == flops


def test_a_cluster_without_measurements():
    c = machine_cluster(MACHINE, num_engines=3)
    assert c.num_engines == 3
    assert c.engines[0].peak("float32") == 32e9
    assert c.engines[0].memory_bytes == 2**31
    assert c.shared[0].memory_bytes == 2**33
    assert machine_cluster(MACHINE).num_engines == 4
    assert machine_cluster(msgspec.structs.replace(MACHINE, num_cores=1)).num_engines == 1


@pytest.mark.parametrize("count", [0, 5])
def test_more_engines_than_there_are(count):
    with pytest.raises(BadInput, match="4 cores"):
        machine_cluster(MACHINE, num_engines=count)


@pytest.mark.parametrize(
    ("name", "gib", "preset"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.2, "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 79.2, None),
        ("NVIDIA H100 80GB HBM3", 79.1, "h100-80gb"),
        ("Tesla V100-SXM2-32GB", 31.7, "v100-32gb"),
        ("NVIDIA L4", 22.0, "l4"),
        ("NVIDIA L40S", 44.4, None),
        ("NVIDIA H200", 139.8, None),
    ],
)
def test_the_preset_of_a_gpu(name, gib, preset):
    assert gpu_preset(name, int(gib * 2**30)) == preset


def test_a_cluster_of_gpus():
    gpu = Gpu(name="NVIDIA L4", memory_bytes=2**34, preset="l4")
    machine = msgspec.structs.replace(MACHINE, gpus=(gpu, gpu))
    c = machine_cluster(machine, kind="gpu")
    assert c.num_engines == 2
    assert c.engines[1].memory_bytes == 2**34
    strange = msgspec.structs.replace(MACHINE, gpus=(Gpu(name="Strange", memory_bytes=1),))
    with pytest.raises(BadInput, match="Strange"):
        machine_cluster(strange, kind="gpu")
    with pytest.raises(BadInput, match="0 GPUs"):
        machine_cluster(MACHINE, kind="gpu")


def test_the_fingerprint_changes_with_the_machine():
    other = msgspec.structs.replace(MACHINE, num_cores=2)
    assert other.fingerprint != MACHINE.fingerprint
    assert msgspec.structs.replace(MACHINE, clock_hz=2e9).fingerprint == MACHINE.fingerprint
