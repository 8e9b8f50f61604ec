"""`make sweep-verify`: nine models under every kind of plan on every runtime, held against one engine in float64.

    python -m bench.verify_sweep [--quick | --light] [--only TEXT] [--fresh] [--jobs N] [--table docs/verify.md]

Resumable by cell: results are kept in build/verify/cells.jsonl with a digest of the sources that they depend on, and
a cell that was equal is not run again while these are unchanged.  One worker a core, one intra-op thread each, as many
at once as memory allows; a worker that dies takes one cell with it.  Exit status 1 if a cell differs.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from bench.verify_cells import RUNTIMES, Cell, all_cells, light_cells, quick_cells
from bench.verify_table import write_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "verify" / "cells.jsonl"
ROOMS = ("graph", "operators", "plan", "program", "capture", "lower", "run")
SILENCE_S = 900.0  # a worker that says nothing for so long is ended
GUESS_S = 8.0  # of a cell, before any is measured

Record = dict[str, Any]


def digest() -> str:
    """Of the sources that a cell depends on, and of torch's version."""
    package = ROOT / "src" / "trine"
    files = sorted(path for room in ROOMS for path in (package / room).glob("*.py"))
    files += [package / name for name in ("errors.py", "units.py", "cli/values.py")]
    total = hashlib.sha256(torch.__version__.encode())
    for path in [*files, ROOT / "bench" / "verify_cells.py"]:
        total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return total.hexdigest()[:16]


def commit() -> str:
    """The commit that is checked out, marked where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def known_records(sources: str) -> dict[str, Record]:
    """The last record of each cell that was made from these sources."""
    if not RESULTS.exists():
        return {}
    records = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {record["key"]: record for record in records if record["sources"] == sources}


def gigabytes(field: str) -> float:
    """What the system says of its memory: MemTotal, or MemAvailable now."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return int(fields[field].split()[0]) / 2**20


class Sweep:
    """Runs groups of cells in workers and keeps count."""

    def __init__(self, cells: Sequence[Cell], done: Mapping[str, Record], sources: str, jobs: int) -> None:
        self.sources, self.commit, self.jobs = sources, commit(), jobs
        self.records = {cell.key: done[cell.key] for cell in cells if cell.key in done}
        todo = [cell for cell in cells if cell.key not in self.records]
        groups: dict[tuple[str, int, int, bool], list[Cell]] = {}
        for cell in todo:
            groups.setdefault(cell.group, []).append(cell)
        self.waiting, self.num_left = list(groups.values()), len(todo)
        self.memory, self.running = gigabytes("MemTotal") * 0.9, dict[int, float]()
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self.retried = set[str]()
        self.changed, self.stopped = threading.Condition(), False
        self.start_s, self.num_now = time.monotonic(), 0

    def run(self) -> None:
        """Everything that is left."""
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
        finally:
            self.stopped = True
            for worker in list(self.workers.values()):
                worker.terminate()
            for thread in threads:
                thread.join()

    def work(self, number: int) -> None:
        """One place for a worker: takes groups that fit until there are none."""
        while (group := self.take(number)) is not None:
            try:
                while group and not self.stopped:
                    group = self.judge(number, group)
            finally:
                with self.changed:
                    del self.running[number]
                    self.changed.notify_all()

    def take(self, number: int) -> list[Cell] | None:
        """The first group that fits beside what runs; waits where none does."""
        with self.changed:
            while self.waiting and not self.stopped:
                room = min(self.memory - sum(self.running.values()), gigabytes("MemAvailable"))
                for group in self.waiting:
                    need = group[0].gigabytes
                    if need <= room or not self.running:
                        self.waiting.remove(group)
                        self.running[number] = need
                        return group
                self.changed.wait(1.0)
            return None

    def judge(self, number: int, group: list[Cell]) -> list[Cell]:
        """Run a worker over a group; what is left of it if the worker died."""
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if not group[0].apart:  # freed memory is kept within a cell: a page that is taken again costs a fault
            env |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
        with (RESULTS.parent / f"worker{number}.log").open("a", encoding="utf-8") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "bench.verify_cells", *(cell.key for cell in group)],
                cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.workers[number] = worker
        left, now = list(group), group[0]
        alarm = self.alarm(worker)
        assert worker.stdout is not None
        for line in worker.stdout:
            if not line.startswith("{"):  # a library's word
                continue
            alarm.cancel()
            alarm = self.alarm(worker)
            record = json.loads(line)
            now = Cell.parse(record.get("begin") or record["key"])
            if "key" in record:
                left.remove(now)
                self.enter(record)
        alarm.cancel()
        status = worker.wait()
        if status == -signal.SIGKILL and now.key not in self.retried:  # too little memory: once more
            self.retried.add(now.key)
        elif status and left and not self.stopped:
            self.enter({"key": now.key, "equal": False, "worst": f"the worker ended with status {worker.returncode}"})
            left = [cell for cell in left if cell != now]
        return left

    def alarm(self, worker: subprocess.Popen[str]) -> threading.Timer:
        timer = threading.Timer(SILENCE_S, worker.kill)
        timer.daemon = True
        timer.start()
        return timer

    def enter(self, record: Record) -> None:
        """Keep a record and say how far the sweep is."""
        record |= {"sources": self.sources, "commit": self.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        with self.changed:
            self.records[record["key"]] = record
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            self.num_now += 1
            self.num_left -= 1
            each_s = (time.monotonic() - self.start_s) / self.num_now
            word = "equal  " if record["equal"] and record.get("float32", True) else "DIFFERS"
            print(
                f"[{len(self.records)} done, {self.num_left} left, {each_s * self.num_left / 60:.0f} min] {word} "
                f"{record['key']}  {record['worst']}  ({record.get('seconds', 0)} s)",
                flush=True,
            )


def is_equal(record: Record) -> bool:
    """Whether a cell is equal in float64 and, where that was asked, near enough in float32."""
    return bool(record["equal"]) and bool(record.get("float32", True))


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
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    sources = digest()
    done = {} if options.fresh else {k: r for k, r in known_records(sources).items() if is_equal(r)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers are ended too
    sweep = Sweep(cells, done, sources, options.jobs)
    minutes = sweep.num_left * GUESS_S / options.jobs / 60
    print(
        f"{len(cells)} cells, {sweep.num_left} to run on {options.jobs} cores: about {minutes:.0f} minutes.", flush=True
    )
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
