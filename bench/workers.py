"""Sweeps: cells that workers judge, a process a worker, kept so that a sweep resumes where it was.

A worker is a module of bench whose ``main`` takes the keys of cells and prints one line of JSON when it begins a cell
and one when the cell is judged.  Results are kept with a digest of the sources that they depend on; a cell that was
good is not run again while these are unchanged.  One worker a core, one intra-op thread each, as many at once as memory
allows; a worker that dies takes one cell with it.  Workers are forked from a process that has imported what they need:

    python -m bench.workers bench.zoo_cells
"""

import gc
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("graph", "operators", "plan", "program", "capture", "lower", "run")
SILENCE_S = 900.0  # a worker that says nothing for so long is ended

Record = dict[str, Any]


class Cell(Protocol):
    """One entry of a table.  group: what it shares a worker with; gigabytes: what that needs; apart: engines in
    processes of their own, which need memory that the worker gives back."""

    @property
    def key(self) -> str: ...
    @property
    def gigabytes(self) -> float: ...
    @property
    def group(self) -> Hashable: ...
    @property
    def apart(self) -> bool: ...


@dataclass(frozen=True)
class Kind:
    """One sweep: its worker's module, where its results are kept, how a good record is told from others, files that its
    cells depend on beside the worker, and the rooms of the package that they depend on."""

    worker: str
    results: Path
    good: Callable[[Record], bool]
    sources: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ROOMS

    def digest(self) -> str:
        """Of the sources that a cell depends on, and of torch's version."""
        package = ROOT / "src" / "trine"
        files = sorted(path for room in self.rooms for path in (package / room).glob("*.py"))
        files += [package / name for name in ("errors.py", "units.py", "cli/values.py") if self.rooms]
        total = hashlib.sha256(torch.__version__.encode())
        own = [ROOT / (self.worker.replace(".", "/") + ".py"), *(ROOT / name for name in self.sources)]
        for path in [*files, *own]:
            total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
        return total.hexdigest()[:16]

    def known(self, sources: str) -> dict[str, Record]:
        """The last record of each cell that was made from these sources."""
        if not self.results.exists():
            return {}
        records = [json.loads(line) for line in self.results.read_text(encoding="utf-8").splitlines()]
        return {record["key"]: record for record in records if record["sources"] == sources}


def commit() -> str:
    """The commit that is checked out, marked where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def gigabytes(field: str) -> float:
    """What the system says of its memory: MemTotal, or MemAvailable now."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return int(fields[field].split()[0]) / 2**20


def serve(
    cells: Sequence[Cell], judged: Callable[[Sequence[Any]], Iterator[Record]], failed: Mapping[str, Any] | None = None
) -> None:
    """What a worker does: print the records of cells as they come; a cell that raises is a record too (with what
    ``failed`` says), and the next one follows."""
    warnings.simplefilter("ignore")
    left = list(cells)
    while left:
        now = left[0]
        try:
            for record in judged(left):
                if "key" in record:
                    left = [cell for cell in left if cell.key != record["key"]]
                now = left[0] if left else now
                print(json.dumps(record), flush=True)
            return
        except Exception as error:  # noqa: BLE001  whatever a cell raises is its result
            record = {"key": now.key, "equal": False, "worst": f"{type(error).__name__}: {error}"[:500]}
            print(json.dumps({**record, **(failed or {}), "trace": traceback.format_exc()[-4000:]}), flush=True)
            left = [cell for cell in left if cell.key != now.key]


class Sweep:
    """Runs groups of cells in workers and keeps count."""

    def __init__(self, kind: Kind, cells: Sequence[Cell], done: Mapping[str, Record], jobs: int) -> None:
        self.kind, self.sources, self.commit, self.jobs = kind, kind.digest(), commit(), jobs
        self.cells = {cell.key: cell for cell in cells}
        self.records = {cell.key: done[cell.key] for cell in cells if cell.key in done}
        todo = [cell for cell in cells if cell.key not in self.records]
        groups: dict[Hashable, list[Cell]] = {}
        for cell in todo:
            groups.setdefault(cell.group, []).append(cell)
        self.waiting, self.num_left = list(groups.values()), len(todo)
        self.memory, self.running = gigabytes("MemTotal") * 0.9, dict[int, float]()
        self.servers: dict[tuple[int, bool], subprocess.Popen[str]] = {}
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
            for server in list(self.servers.values()):
                end(server, signal.SIGTERM)
            for thread in threads:
                thread.join()
            for server in self.servers.values():
                close(server)

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
        server = self.server(number, apart=group[0].apart)
        assert server.stdin is not None
        assert server.stdout is not None
        with suppress(OSError):  # it was ended
            server.stdin.write(json.dumps([cell.key for cell in group]) + "\n")
            server.stdin.flush()
        left, now, status = list(group), group[0], None
        alarm = self.alarm(server)
        for line in server.stdout:
            if not line.startswith("{"):  # a library's word
                continue
            alarm.cancel()
            record = json.loads(line)
            if "ended" in record:
                status = record["ended"]
                break
            alarm = self.alarm(server)
            now = self.cells[record.get("begin") or record["key"]]
            if "key" in record:
                left.remove(now)
                self.enter(record)
        alarm.cancel()
        if status is None:  # the server itself is gone, ended by the alarm or for its memory
            self.servers.pop((number, group[0].apart), None)
            close(server)
            status = server.wait()
        if status == -signal.SIGKILL and now.key not in self.retried:  # too little memory: once more
            self.retried.add(now.key)
        elif status and left and not self.stopped:
            self.enter({"key": now.key, "equal": False, "worst": f"the worker ended with status {status}"})
            left = [cell for cell in left if cell != now]
        return left

    def server(self, number: int, *, apart: bool) -> subprocess.Popen[str]:
        """The process that forks the workers of one place."""
        if (number, apart) not in self.servers:
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            if not apart:  # freed memory is kept within a cell: a page that is taken again costs a fault
                env |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
            with (self.kind.results.parent / f"worker{number}.log").open("a", encoding="utf-8") as log:
                self.servers[number, apart] = subprocess.Popen(
                    [sys.executable, "-m", "bench.workers", self.kind.worker], cwd=ROOT, env=env, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                )  # fmt: skip
        return self.servers[number, apart]

    def alarm(self, server: subprocess.Popen[str]) -> threading.Timer:
        timer = threading.Timer(SILENCE_S, end, (server, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        return timer

    def enter(self, record: Record) -> None:
        """Keep a record and say how far the sweep is."""
        record |= {"sources": self.sources, "commit": self.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        with self.changed:
            self.records[record["key"]] = record
            with self.kind.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            self.num_now += 1
            self.num_left -= 1
            each_s = (time.monotonic() - self.start_s) / self.num_now
            word = "good   " if self.kind.good(record) else "DIFFERS"
            print(
                f"[{len(self.records)} done, {self.num_left} left, {each_s * self.num_left / 60:.0f} min] {word} "
                f"{record['key']}  {record['worst']}  ({record.get('seconds', 0)} s)",
                flush=True,
            )


def end(server: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """End a server and the worker that it has forked."""
    with suppress(OSError):
        os.killpg(server.pid, how)


def close(server: "subprocess.Popen[str]") -> None:
    """Close the pipes to a server."""
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def main(module: str) -> None:
    """Import a worker's module and what it names in PRELOAD; for each line of keys fork a process that judges them, and
    say how it ended."""
    worker = importlib.import_module(module)
    for name in getattr(worker, "PRELOAD", ()):
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # workers look through what they make, not through what was imported
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                worker.main(json.loads(line))
                status = 0
            except BaseException:  # noqa: BLE001  it ends here
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"ended": status}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
