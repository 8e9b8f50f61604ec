"""DTensor on the samples of PyTorch's operator database: the worker that judges operators by name.

Two processes share a mesh.  The first tensor of a sample is sharded along each of its dimensions in turn, the others
are replicated; the sample is right if some dimension gives the whole's result, else wrong, else it raises; one without
a dimension of two is not sharded.  It hangs if nothing is said for 20 s, and dies if a process ends; the two are then
started anew behind the sample.

    python -m bench.op_db_dtensor nn.functional.conv2d cumsum
"""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import warnings
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from bench.op_db_samples import samples
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils import _pytree as pytree

LIMIT_S = 20.0
START_S = 60.0
PAIR = "--pair"


def pair(rank: int, port: int, first: int, names: list[str]) -> None:
    """One of the two processes: judges samples from number ``first`` of the first name on."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for number_of, name in enumerate(names):
        for number, (call, tensors) in enumerate(samples(name)):
            if number_of == 0 and number < first:
                continue
            said(rank, {"begin": name, "sample": number})
            said(rank, {"name": name, "sample": number, "result": judge(call, tensors, mesh)})
        said(rank, {"end": name})


def said(rank: int, record: dict[str, Any]) -> None:
    if rank == 0:
        print(json.dumps(record), flush=True)


def judge(call: Any, tensors: list[torch.Tensor], mesh: Any) -> str:
    """The best over the dimensions of the first tensor."""
    want = [t for t in pytree.tree_leaves(call(*tensors)) if torch.is_tensor(t)]
    found: list[str] = []
    for dim in range(tensors[0].dim() if tensors else 0):
        if tensors[0].shape[dim] < 2:
            continue
        try:
            given = [distribute_tensor(tensors[0], mesh, [Shard(dim)])]
            given += [distribute_tensor(t, mesh, [Replicate()]) for t in tensors[1:]]
            got = [t for t in pytree.tree_leaves(call(*given)) if torch.is_tensor(t)]
            got = [t.full_tensor() if isinstance(t, DTensor) else t for t in got]
            found.append("right" if len(got) == len(want) and all(map(alike, got, want)) else "wrong")
        except Exception:  # noqa: BLE001  that it raises is the result
            found.append("raises")
    return min(found, key=["right", "wrong", "raises"].index) if found else "not sharded"


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, 1e-10, 1e-10, equal_nan=True)


def main(names: list[str]) -> None:
    """Judge the operators that are given; processes that hang are ended and started anew behind the sample."""
    left, first = list(names), 0
    counts = {name: Counter[str]() for name in names}
    while left:
        print(json.dumps({"begin": left[0]}), flush=True)
        place = watch(left, first, counts)
        if place is None:
            return
        name, number, how = place
        counts[name][how] += 1
        left, first = left[left.index(name) :], number + 1


def watch(names: list[str], first: int, counts: dict[str, Counter[str]]) -> tuple[str, int, str] | None:
    """Start two processes and count what they say; the sample in which they hang or die, None if they come through."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.op_db_dtensor", PAIR]
    both = [
        subprocess.Popen(
            [*command, str(rank), str(port), str(first), *names],
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    out = both[0].stdout
    assert out is not None
    threading.Thread(target=lambda: ([lines.put(line) for line in out], lines.put(None)), daemon=True).start()
    now, ended = (names[0], first), set[str]()
    try:
        line = lines.get(timeout=START_S)
        while line is not None:
            if line.startswith("{"):
                record = json.loads(line)
                if "begin" in record:
                    now = (record["begin"], record["sample"])
                elif "result" in record:
                    counts[record["name"]][record["result"]] += 1
                else:
                    ended.add(record["end"])
                    told = dict(counts[record["end"]])
                    print(json.dumps({"key": record["end"], "equal": True, "worst": str(told), **told}), flush=True)
            line = lines.get(timeout=LIMIT_S)
    except queue.Empty:
        return *now, "hangs"
    finally:
        for process in both:
            process.kill()
            process.wait()
    return None if len(ended) == len(names) else (*now, "dies")


if __name__ == "__main__":
    if sys.argv[1:2] == [PAIR]:
        pair(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    else:
        main(sys.argv[1:])
