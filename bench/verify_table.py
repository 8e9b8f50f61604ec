"""The table of the sweep, as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.verify_cells import BATCHES, PLANS, SUBJECTS, Cell

Record = dict[str, Any]

HEAD = """# What verify proves

Nine models in training, three steps of SGD with momentum, held against the plain module on one engine: outputs, loss,
buffers and each gradient by name, every step, and the weights after the last. Images have 64 pixels; batch 5 does not
divide by the engines nor by the micro-batches. Where a plan streams micro-batches, one engine accumulates over the
same ones. Batch norm is synchronised; dropout and stochastic depth are drawn by global position.

    make sweep-verify          # python -m bench.verify_sweep --table docs/verify.md

`space` is height or, for language, sequence; `features` is heads or, where there are none, channels. A cell holds the
largest relative difference of step 1 over the runtimes ({runtimes}), which may be 1e-9; `steps 2, 3` may differ by
1e-9 or by 100 times the drift of one engine whose weights start one unit in the last place higher. {notes}

"""


def write_table(path: Path, records: Mapping[str, Record], runtimes: Sequence[str]) -> None:
    """Write the results of complete cells."""
    lines = [HEAD.format(runtimes=", ".join(runtimes), notes=NOTES)]
    dates, commits = {r["date"] for r in records.values()}, {r["commit"] for r in records.values()}
    good = sum(bool(r["equal"]) for r in records.values())
    lines.append(
        f"{max(dates)}, commit {', '.join(sorted(commits))}: {good} of {len(records)} cells are equal; "
        f"{sum(bool(r.get('float32')) for r in records.values())} of "
        f"{sum('float32' in r for r in records.values())} float32 runs are as near to float64 as one engine's.\n"
    )
    lines += ["## Largest difference of step 1\n", *grid(records, largest)]
    lines += ["\n## FLOPs that ran tiled, of those of operators that have the dimension\n", *grid(records, tiled)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


NOTES = (
    "GPT-2 has 4 layers of width 192 and 64 tokens. VGG-16-BN and ViT-B/16 on processes, where every engine holds "
    "and reports its own copies in float64, leave out the plan with four whole copies of the weights, and run plans "
    "with two at batch 5 only."
)


def grid(records: Mapping[str, Record], value: Any) -> list[str]:
    """One row a model and batch, one column a plan."""
    lines = ["| model | batch | " + " | ".join(PLANS) + " |", "|---|---|" + "---|" * len(PLANS)]
    for model in SUBJECTS:
        for batch in BATCHES:
            found = [[r for key, r in records.items() if key.startswith(f"{model}/b{batch}/{plan}/")] for plan in PLANS]
            if any(found):
                lines.append(f"| {model} | {batch} | " + " | ".join(map(value, found)) + " |")
    return lines


def largest(found: Sequence[Record]) -> str:
    """The worst of step 1 over the runtimes; what differs is said."""
    if not found:
        return ""
    wrong = [Cell.parse(r["key"]).on for r in found if not r["equal"]]
    return f"DIFFERS on {', '.join(wrong)}" if wrong else f"{max(r['first'] for r in found):.0e}"


def tiled(found: Sequence[Record]) -> str:
    """The smallest share over axes."""
    shares = [share for r in found for cut, share in r.get("shares", {}).items() if cut != "batch"]
    return f"{min(shares):.1%}" if shares else ""
