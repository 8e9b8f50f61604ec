"""How long planning takes after capture, and how near estimates are to what is simulated.

    python -m bench.plan_time [--only TEXT]

Small models on 2 hosts of 4 engines, larger ones on 64, a GPT-3 of 175 billion parameters on 1,024 and a Llama 3 of 405
billion on 16,384, from data sheets; weights have no data.  Each case runs in a process of its own, whose highest
resident size is printed.  Where finalists are simulated, their estimates are held against that.
"""

import argparse
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.cli.values import setting
from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster, Tier
from trine.planner.fleet import Fleet
from trine.report.plan import on_sheets, search, told
from trine.report.wide import Wide, finalists
from trine.run.job import Job
from trine.scenario.scenario import Scenario
from trine.units import TIME

CASE = "--case"
GPT3 = ("n_layer=96", "n_embd=12288", "n_head=96", "n_positions=2048", "vocab_size=51200")
LLAMA = (
    "hidden_size=16384", "intermediate_size=53248", "num_hidden_layers=126", "num_attention_heads=128",
    "num_key_value_heads=8", "vocab_size=128256", "max_position_embeddings=8192",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model at a batch, a cluster, and the seconds that planning and the whole of it may take."""

    name: str
    spec: str
    cluster: str
    batch: int
    plan_s: float
    whole_s: float = float("inf")
    settings: tuple[str, ...] = ()
    seq: int | None = None
    dtype: str | None = None


CASES = (
    Case("ResNet-18 on 2 x 4", "torchvision:resnet18", "2x4", 64, 1.0),
    Case("transformer of 4 layers on 2 x 4", "hf:gpt2", "2x4", 32, 0.5, settings=("n_layer=4",), seq=128),
    Case("ResNet-152 on 64", "torchvision:resnet152", "a100-80gbx64", 512, 5.0),
    Case("Swin-B on 64", "torchvision:swin_b", "a100-80gbx64", 512, 5.0),
    Case("GPT-3 175B on 1024", "hf:gpt2", "a100-80gbx1024", 1536, 10.0, 30.0, GPT3, 2048, "bfloat16"),
    Case("Llama 3 405B on 16384", "hf:llama", "h100-80gbx16384", 2048, 30.0, 90.0, LLAMA, 8192, "bfloat16"),
)


def engines(name: str) -> Cluster:
    """A preset times a count, or two hosts of four A100 whose network is 20 times slower than what is inside."""
    if name != "2x4":
        return choose_cluster(name)
    whole = choose_cluster("a100-80gbx8")
    inner = whole.tiers[0].link
    outer = type(inner)(latency_s=inner.latency_s, bandwidth_bytes_per_s=inner.bandwidth_bytes_per_s / 20)
    tiers = (Tier(name="host", size=4, link=inner), Tier(name="network", size=8, link=outer))
    return Cluster(name="2 hosts of 4 A100", engines=whole.engines, tiers=tiers)


def run(case: Case) -> bool:
    """One case; whether it keeps its bars."""
    warnings.simplefilter("ignore")
    start_s = time.perf_counter()
    wishes = Wishes(tuple(setting(t, "--set") for t in case.settings), seq=case.seq, dtype=case.dtype)
    job = Job(load_model(case.spec, wishes, case.batch, meta=True), True)
    operators = len(job.graph().operators)
    captured_s = time.perf_counter() - start_s
    basis = on_sheets(engines(case.cluster), case.cluster)
    start_s = time.perf_counter()
    wide = Wide(job, Fleet(basis.cluster, basis.roofline, job.optimizer_states))
    found = wide.search()
    chosen = list(finalists(found))
    searched_s = time.perf_counter() - start_s
    for candidate in chosen:  # what is captured again for other micro-batches is capture too
        if wide.small(chosen):
            job.graph_for(candidate.degrees.micro_batches)
    start_s = time.perf_counter()
    answer = search(job, Scenario("training", case.batch), basis)
    plan_s = time.perf_counter() - start_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    best, predicted = answer.ranked[0]
    good = plan_s < case.plan_s and captured_s + plan_s < case.whole_s and memory < 2.0
    print(
        f"{case.name}: {operators} operators captured in {captured_s:.1f} s; planned in {plan_s:.2f} s (bar "
        f"{case.plan_s:g}; {found.num_estimated} estimates in {searched_s:.2f}), {memory:.2f} GiB at most: "
        f"{'kept' if good else 'NOT KEPT'}\n  {best.describe()}: {TIME.format(predicted.time_s)}. {answer.how}.",
        flush=True,
    )
    if wide.small(chosen):
        pairs = [(candidate.estimate, told(job, wide.plan(candidate, exact=True), basis)[0]) for candidate in chosen]
        times = [estimate.time_s / real.time_s - 1 for estimate, real in pairs]
        memories = [max(estimate.needs_bytes) / real.memory_bytes - 1 for estimate, real in pairs]
        shown = [", ".join(f"{error:+.0%}" for error in errors) for errors in (times, memories)]
        print(f"  estimates beside simulated: time {shown[0]}; memory {shown[1]}", flush=True)
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every case keeps its bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    parser.add_argument(CASE, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case is not None:
        return 0 if run(CASES[options.case]) else 1
    bad = 0
    for number, case in enumerate(CASES):
        if options.only in case.name:
            bad += subprocess.run([sys.executable, "-m", "bench.plan_time", CASE, str(number)], check=False).returncode
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
