"""`make op-db`: footprints on every sample of PyTorch's operator database, beside DTensor on the same samples.

    python -m bench.op_db_sweep [--only TEXT] [--fresh] [--jobs N] [--no-dtensor] [--table docs/op_db.md]

Resumable by operator (build/op_db).  Exit status 1 if an operator that trine says it can cut breaks a law.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from bench.op_db_cells import WIDER
from bench.op_db_samples import OpCell, database
from bench.workers import ROOT, Kind, Record, Sweep

FOLDER = ROOT / "build" / "op_db"
SAMPLES = "bench/op_db_samples.py"
OURS = Kind("bench.op_db_cells", FOLDER / "ours.jsonl", lambda r: bool(r["equal"]), (SAMPLES, "tests/laws/pieces.py"))
THEIRS = Kind("bench.op_db_dtensor", FOLDER / "dtensor.jsonl", lambda r: bool(r["equal"]), (SAMPLES,), rooms=())
RESULTS = ("right", "raises", "wrong", "hangs", "dies", "not sharded")

HEAD = """# Footprints on PyTorch's operator database

Every sample of `torch.testing`'s `op_db` that takes float64, traced to its aten operators, a few of which a capture
writes as others. Each of these that trine says it can cut is cut along every rule into random uneven parts: pieces must
make the whole (bit for bit on small integers where that is exact, else to 1e-12); pieces that are no partial sums must
read nothing else (NaN outside, or 1000 where NaN spreads by itself); both ends of what a piece needs along a cut must
matter (some values there change it; exceptions: {wider}); gradients must add up.
DTensor has the same samples on two processes, the first tensor sharded along each of its dimensions in turn.

    make op-db          # python -m bench.op_db_sweep --table docs/op_db.md

"""


def run(kind: Kind, names: Sequence[str], options: argparse.Namespace) -> dict[str, Record]:
    """Judge operators by one worker."""
    done = {} if options.fresh else {k: r for k, r in kind.known(kind.digest()).items() if kind.good(r)}
    sweep = Sweep(kind, [OpCell(name) for name in names], done, options.jobs)
    print(f"{kind.worker}: {len(names)} operators, {sweep.num_left} to judge.", flush=True)
    sweep.run()
    return sweep.records


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every operator that is cut keeps the laws."""
    parser = argparse.ArgumentParser(prog="bench.op_db_sweep", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="only operators whose name has this in it")
    parser.add_argument("--fresh", action="store_true", help="judge again what is known")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="workers at once")
    parser.add_argument("--no-dtensor", action="store_true", help="trine alone")
    parser.add_argument("--table", type=Path, help="where to write the table")
    options = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers are ended too
    names, start = [name for name in database() if options.only in name], time.monotonic()
    ours = run(OURS, names, options)
    theirs = {} if options.no_dtensor else run(THEIRS, names, options)
    for name, record in ours.items():
        if not record["equal"]:
            print(f"BROKEN {name}: {record['worst']}")
    text = summary(ours, theirs)
    print("\n".join(text))
    print(f"{(time.monotonic() - start) / 60:.0f} minutes.")
    if options.table is not None and len(ours) == len(names):
        date = max(record["date"] for record in ours.values())
        commit = sorted({record["commit"] for record in ours.values()})
        body = [f"{date}, commit {', '.join(commit)}, torch {torch.__version__}.\n", *text, "", *rows(ours, theirs)]
        wider = "; ".join(f"`{name}`, {why}" for name, why in WIDER.items())
        options.table.write_text(HEAD.format(wider=wider) + "\n".join(body) + "\n", encoding="utf-8")
    return 0 if all(record["equal"] for record in ours.values()) and len(ours) == len(names) else 1


def summary(ours: Mapping[str, Record], theirs: Mapping[str, Record]) -> list[str]:
    """Sums over all samples."""
    sums = Counter[str]()
    for record in ours.values():
        sums.update({key: record.get(key, 0) for key in ("samples", "cut", "right", "untraced")})
    with_cuts = [r for r in ours.values() if r.get("cut")]
    result = [
        f"- trine: {len(with_cuts)} of {len(ours)} operators have samples with something to cut; of {sums['samples']} "
        f"samples {sums['cut']} are cut, {sums['right']} of these right; {sums['untraced']} could not be traced."
    ]
    if theirs:
        found = Counter[str]()
        for record in theirs.values():
            found.update({key: record.get(key, 0) for key in RESULTS})
        every = sum(1 for record in theirs.values() if record.get("right") and not record.get("wrong"))
        said = ", ".join(f"{found[key]} {key}" for key in RESULTS)
        result.append(
            f"- DTensor: {every} of {len(theirs)} operators with right samples and none wrong; samples: {said}."
        )
    return result


def rows(ours: Mapping[str, Record], theirs: Mapping[str, Record]) -> list[str]:
    """One row an operator."""
    head = ["operator", "samples", "cut", "right", *(f"DTensor {name}" for name in RESULTS)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, record in sorted(ours.items()):
        other = theirs.get(name, {})
        numbers = [record.get(key, 0) for key in ("samples", "cut", "right")] + [other.get(key, 0) for key in RESULTS]
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
