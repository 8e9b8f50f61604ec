"""`make sweep-verify`: nine models under every kind of plan on every runtime, held against one engine in float64.

    python -m bench.verify_sweep [--quick | --light] [--only TEXT] [--fresh] [--jobs N] [--table docs/verify.md]

Resumable by cell: results are kept in build/verify/cells.jsonl with a digest of the sources that they depend on, and
a cell that was equal is not run again while these are unchanged.  One worker a core, one intra-op thread each, as many
at once as memory allows; a worker that dies takes one cell with it.  Exit status 1 if a cell differs.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.verify_cells import REFERENCES, RUNTIMES, Cell, all_cells, light_cells, quick_cells
from bench.verify_table import write_table
from bench.workers import ROOT, Kind, Record, Sweep

GUESS_S = 8.0  # of a cell, before any is measured


def is_equal(record: Record) -> bool:
    """Whether a cell is equal in float64 and, where that was asked, near enough in float32."""
    return bool(record["equal"]) and bool(record.get("float32", True))


KIND = Kind("bench.verify_cells", ROOT / "build" / "verify" / "cells.jsonl", is_equal)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every cell is equal."""
    parser = argparse.ArgumentParser(prog="bench.verify_sweep", description=__doc__.split("\n")[0] if __doc__ else "")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="every model under every plan, on one runtime in turn")
    size.add_argument("--light", action="store_true", help="the same without the two models that need much memory")
    parser.add_argument("--only", default="", help="only cells whose key has this in it")
    parser.add_argument("--fresh", action="store_true", help="run cells again that are known")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="workers at once")
    parser.add_argument("--table", type=Path, help="where to write the table of results")
    options = parser.parse_args(arguments)
    cells = quick_cells() if options.quick else light_cells() if options.light else all_cells()
    cells = [cell for cell in cells if options.only in cell.key]
    KIND.results.parent.mkdir(parents=True, exist_ok=True)
    done = {} if options.fresh else {k: r for k, r in KIND.known(KIND.digest()).items() if is_equal(r)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers are ended too
    sweep = Sweep(KIND, cells, done, options.jobs)
    minutes = sweep.num_left * GUESS_S / options.jobs / 60
    print(
        f"{len(cells)} cells, {sweep.num_left} to run on {options.jobs} cores: about {minutes:.0f} minutes.", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="references-", dir=KIND.results.parent) as folder:
        os.environ[REFERENCES] = folder
        sweep.run()
    return finish(cells, sweep.records, options.table, time.monotonic() - sweep.start_s)


def finish(cells: Iterable[Cell], records: Mapping[str, Record], table: Path | None, took_s: float) -> int:
    """Say what differs; write the table if it is complete."""
    count = Counter("missing" if c.key not in records else is_equal(records[c.key]) for c in cells)
    for key, record in sorted(records.items()):
        if not is_equal(record):
            print(f"DIFFERS {key}: {record['worst']}")
            print(record.get("trace", ""), end="")
    print(f"{count[True]} equal, {count[False]} differ, {count['missing']} not run, in {took_s / 60:.0f} minutes.")
    if table is not None and not count["missing"]:
        write_table(table, records, RUNTIMES)
    return 0 if not count[False] and not count["missing"] else 1


if __name__ == "__main__":
    sys.exit(main())
