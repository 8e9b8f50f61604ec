"""How long a plan takes to become Programs, after capture.

    python -m bench.compile_time

ResNet-50 for 8 engines and a transformer of 96 layers for 64, by a mix of data, stages and tensor; then the same two
for more and more engines, which may cost at most in proportion.  Each is the median of several, all Programs of all
engines together; weights have no data.  The transformer streams micro-batches of one row.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.cli.values import setting
from trine.graph.graph import Graph
from trine.plan.build import build
from trine.program.compile import Compiled, batches
from trine.run.job import Job

DEEP = ("n_layer=96", "n_embd=1536", "n_head=16")


@dataclass(frozen=True)
class Case:
    """A model, its batch, plans by the number of engines, and the seconds that one of them may take."""

    spec: str
    settings: tuple[str, ...]
    seq: int | None
    size: int | None
    batch: int
    plans: Mapping[int, dict[str, Any]]
    bar: tuple[int, float]


CASES = (
    Case("torchvision:resnet50", (), None, 224, 16, {
        1: {}, 2: {"data": 2}, 4: {"data": 2, "tensor": (2,), "cuts": ("height",)},
        8: {"data": 2, "tensor": (4,), "cuts": ("height",)}, 16: {"data": 4, "tensor": (4,), "cuts": ("height",)},
    }, (8, 1.0)),
    Case("hf:gpt2", DEEP, 512, None, 16, {
        8: {"stages": 4, "micro_batches": 8, "tensor": (2,), "cuts": ("heads",)},
        16: {"stages": 4, "micro_batches": 8, "tensor": (4,), "cuts": ("heads",)},
        32: {"data": 2, "stages": 4, "micro_batches": 8, "tensor": (4,), "cuts": ("heads",)},
        64: {"data": 2, "stages": 8, "micro_batches": 8, "tensor": (4,), "cuts": ("heads",)},
    }, (64, 5.0)),
)  # fmt: skip


def main() -> int:
    """0: both bars are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    kept = True
    for case in CASES:
        wishes = Wishes(tuple(setting(text, "--set") for text in case.settings), seq=case.seq, size=case.size)
        job = Job(load_model(case.spec, wishes, case.batch, meta=True), True)
        start_s = time.perf_counter()
        most = max(wish.get("micro_batches", 1) for wish in case.plans.values())
        graphs = {rows: job.graph(rows) for rows in {case.batch, batches(case.batch, most)[0][1]}}
        operators = len(next(iter(graphs.values())).operators)
        print(f"{case.spec} {' '.join(case.settings)}: {operators} operators, captured in "
              f"{time.perf_counter() - start_s:.1f} s, batch {case.batch}")  # fmt: skip
        for engines, wishes_by_degree in case.plans.items():
            seconds = statistics.median(timed(case, graphs, wishes_by_degree) for _ in range(repeat))
            kept = kept and (engines != case.bar[0] or seconds < case.bar[1])
            bar = f"  (bar: {case.bar[1]:g} s)" if engines == case.bar[0] else ""
            print(
                f"  {engines:3d} engines: {seconds:6.2f} s, {1e3 * seconds / engines:6.1f} ms an engine{bar}",
                flush=True,
            )
    return 0 if kept else 1


def timed(case: Case, graphs: Mapping[int, Graph], wish: dict[str, Any]) -> float:
    """Seconds from a plan to all Programs."""
    plan = build(graphs[batches(case.batch, wish.get("micro_batches", 1))[0][1]], batch=case.batch, **wish)
    start_s = time.perf_counter()
    programs = Compiled(graphs.__getitem__, plan, case.batch).programs()
    assert len(programs) == plan.num_engines
    return time.perf_counter() - start_s


if __name__ == "__main__":
    sys.exit(main())
