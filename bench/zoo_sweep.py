"""`make sweep`: every model of a list under every cut, training and evaluation, held against one engine.

    python -m bench.zoo_sweep [--models FILE] [--quick] [--only TEXT] [--fresh] [--jobs N] [--table docs/sweep.md]

In float64, by lockstep: outputs, loss, buffers and each gradient of one step.  A cut that a model does not have is
refused, with what is possible; that is a good cell.  Resumable by cell (build/zoo/cells.jsonl).  The table is compared
with the last one; a cell that was exact and is not any more is said.  Exit status 1 if a cell differs or was lost.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.workers import ROOT, Kind, Record, Sweep
from bench.zoo_cells import ZooCell, cells, lines
from bench.zoo_table import losses, write_table

LIST = Path(__file__).with_name("models.txt")
GUESS_S = 4.0  # of a cell, before any is measured
QUICK = ("height 3:2:1", "sequence 2", "length 2", "heads 2", "channel 2", "stages 3 x tile 2")


def is_good(record: Record) -> bool:
    """Exact, or refused with a sentence."""
    return bool(record["equal"])


KIND = Kind("bench.zoo_cells", ROOT / "build" / "zoo" / "cells.jsonl", is_good, ("bench/zoo_models.py",))


def quick(of: Sequence[ZooCell]) -> list[ZooCell]:
    """Each model at the last size that the list has for it, in training, under the cuts that find the most."""
    last = {cell.line.spec: cell.line.text for cell in of if "train" in cell.line.modes}
    return [c for c in of if c.mode == "train" and c.cut in QUICK and last[c.line.spec] == c.line.text]


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every cell is exact or refused, and none was lost."""
    parser = argparse.ArgumentParser(prog="bench.zoo_sweep", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--models", type=Path, default=LIST, help="one specification a line, with its options")
    parser.add_argument("--quick", action="store_true", help="each model at one size, in training, under some cuts")
    parser.add_argument("--only", default="", help="only cells whose key has this in it")
    parser.add_argument("--fresh", action="store_true", help="run cells again that are known")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="workers at once")
    parser.add_argument("--table", type=Path, help="where the table is, which is compared and written anew")
    options = parser.parse_args(arguments)
    every = cells(lines(options.models))
    every = [cell for cell in (quick(every) if options.quick else every) if options.only in cell.key]
    KIND.results.parent.mkdir(parents=True, exist_ok=True)
    done = {} if options.fresh else {k: r for k, r in KIND.known(KIND.digest()).items() if is_good(r)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers are ended too
    sweep = Sweep(KIND, every, done, options.jobs)
    minutes = sweep.num_left * GUESS_S / options.jobs / 60
    print(
        f"{len(every)} cells, {sweep.num_left} to run on {options.jobs} cores: about {minutes:.0f} minutes.", flush=True
    )
    sweep.run()
    return finish(every, sweep.records, options.table, time.monotonic() - sweep.start_s)


def finish(every: Sequence[ZooCell], records: dict[str, Record], table: Path | None, took_s: float) -> int:
    """Say what differs and what was lost since the last table; write the table if it is complete."""
    count = Counter("missing" if c.key not in records else records[c.key].get("result", "failed") for c in every)
    for key, record in sorted(records.items()):
        if not is_good(record):
            print(f"{record.get('result', 'failed')} {key}: {record['worst']}")
            print(record.get("trace", ""), end="")
    lost = losses(table, every, records) if table is not None and table.exists() else []
    print("".join(f"LOST {text}\n" for text in lost), end="")
    said = ", ".join(f"{number} {name}" for name, number in count.most_common())
    print(f"{len(every)} cells: {said}, in {took_s / 60:.0f} minutes.")
    if table is not None and not count["missing"]:
        write_table(table, every, records)
    good = count["exact"] + count["refused"] == len(every)
    return 0 if good and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
