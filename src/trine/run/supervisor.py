"""Processes under one eye: the first failure ends all and is the one that is reported."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Self

from trine.errors import EngineFailed, OutOfMemory, TrineError
from trine.run import memory, worker
from trine.run.wire import END, GO, Failure, Ready, unpack
from trine.units import BYTES

GRACE_S = 2.0  # how long to look for the cause after an engine said only that another one was lost
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
END_S = 5.0  # how long a process may take to end


@contextmanager
def _start_of_children(with_main: bool) -> Iterator[None]:
    """Children inherit that SIGINT is blocked (Ctrl-C is the parent's) and that torch's C++ part reports errors only.
    Unless they need the main script, they do not see it: importing it again in each of them takes as long as its
    imports take."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main, level = sys.modules["__main__"], os.environ.get(LOG_LEVEL)
    os.environ[LOG_LEVEL] = level or "ERROR"
    if not with_main:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if level is None:
            del os.environ[LOG_LEVEL]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Supervisor:
    """Starts engines' processes, passes messages, and ends all of them when one fails."""

    def __init__(
        self,
        num_engines: int,
        directory: str,
        start_method: str,
        *,
        with_main: bool,
        preload: Sequence[str] = (),
        start: worker.Starting = worker.start,
    ) -> None:
        """``with_main``: whether the engines need what the caller's main script defines, and so run it as a module.

        ``start``: what makes an engine in its process.  ``preload``: modules that a fork server imports once for all
        engines that it will ever start.
        """
        self.with_main = with_main
        context: Any = get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload([worker.__name__, *preload])
        resource_tracker.ensure_running()  # it unblocks SIGINT here when it starts, so it starts first
        self.pipes: list[Any] = []
        self.processes: list[BaseProcess] = []
        self.ready: dict[int, tuple[Ready, int]] = {}  # with the number of kills for memory at the start
        for rank in range(num_engines):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=worker.main, args=(rank, directory, theirs, start), name=f"engine {rank}", daemon=True
            )
            self.pipes.append(ours)
            self.processes.append(process)
            with _start_of_children(with_main):
                process.start()
            theirs.close()

    def wait_ready(self) -> None:
        """Until every engine has started: all are there, then they connect, so that none waits for one that imports."""
        self.gather()
        for rank in self._ranks:
            self.send(rank, GO)
        for rank, message in self.gather().items():
            self.ready[rank] = (message, memory.kills(message.kills_file))

    def send(self, rank: int, message: bytes) -> None:
        """To one engine; if it is gone, ``gather`` will say so."""
        with suppress(OSError):
            self.pipes[rank].send_bytes(message)

    def gather(self) -> dict[int, Any]:
        """One message from every engine; raises for the first failure after all engines have been ended."""
        answers: dict[int, Any] = {}
        failures: dict[int, Failure] = {}
        deadline: float | None = None
        while len(answers) < len(self.pipes):
            for rank, message in self._arrived(set(self._ranks) - set(answers) - set(failures), deadline).items():
                if isinstance(message, Failure):
                    failures[rank] = message
                else:
                    answers[rank] = message
            causes = {rank: f for rank, f in failures.items() if f.kind != "lost"}
            if failures and not causes and deadline is None:
                deadline = time.monotonic() + GRACE_S
            if causes or (deadline is not None and time.monotonic() >= deadline):
                waiting = sorted(set(self._ranks) - set(answers) - set(failures))
                self.end()
                raise self._error(causes, failures, waiting)
        return answers

    @property
    def _ranks(self) -> range:
        return range(len(self.pipes))

    def _arrived(self, ranks: set[int], deadline: float | None) -> dict[int, Any]:
        """What comes next: messages, and the deaths of engines that left none."""
        timeout_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        by_handle = {self.pipes[r]: r for r in ranks} | {self.processes[r].sentinel: r for r in self._ranks}
        found = {by_handle[handle] for handle in connection.wait(list(by_handle), timeout_s)}
        result: dict[int, Any] = {}
        for rank in found:
            try:
                result[rank] = unpack(self.pipes[rank].recv_bytes())
            except (EOFError, OSError):
                result[rank] = self._death(rank)
        return result

    def _death(self, rank: int) -> Failure:
        """Why a process ended that said nothing."""
        process, at_s = self.processes[rank], time.monotonic()
        process.join(END_S)
        code = process.exitcode
        if code is not None and code < 0:
            trace = f"Process {process.pid} was ended by {signal.Signals(-code).name}."
        else:
            trace = f"Process {process.pid} ended with exit status {code} and said nothing."
        ready, kills = self.ready.get(rank, (None, 0))
        if ready is None and self.with_main:
            trace += (
                " It had not started yet. The optimizer is defined in the main script, so every engine runs that script"
                ' as a module: what starts engines there must be under `if __name__ == "__main__":`.'
            )
        if ready is not None and ready.memory_limit_bytes and memory.kills(ready.kills_file) > kills:
            return Failure("memory", trace, at_s, 0, ready.memory_limit_bytes)
        return Failure("error", trace, at_s)

    def _error(self, causes: dict[int, Failure], failures: dict[int, Failure], waiting: list[int]) -> TrineError:
        """The first cause; without any, the engine for which the others waited."""
        if not causes:
            order = sorted(failures, key=lambda rank: failures[rank].at_s)
            traces = "\n".join(f"Engine {rank} waited:\n{failures[rank].trace}" for rank in order)
            if not waiting:
                return EngineFailed(rank=order[0], trace=traces, others="It and others waited for each other.")
            return EngineFailed(rank=waiting[0], trace=f"It did not answer.\n{traces}", others="The others were ended.")
        rank = min(causes, key=lambda rank: causes[rank].at_s)
        cause = causes[rank]
        if cause.kind == "memory":
            known = cause.needed_bytes > cause.limit_bytes
            needed = BYTES.format(cause.needed_bytes) if known else "more memory"
            base = self.ready[rank][0].used_bytes if rank in self.ready else 0
            return OutOfMemory(
                rank=rank, needed=needed, limit=BYTES.format(cause.limit_bytes), base_bytes=base,
                limit_bytes=cause.limit_bytes,
            )  # fmt: skip
        return EngineFailed(
            rank=rank, trace=cause.trace, others="The others were ended." if len(self.pipes) > 1 else ""
        )

    def close(self) -> None:
        """Let the engines end by themselves, then end those that do not."""
        for rank in self._ranks:
            self.send(rank, END)
        deadline = time.monotonic() + END_S
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self.end()

    def end(self) -> None:
        """End all processes now."""
        for process in self.processes:
            if process.is_alive():
                process.kill()
        for process in self.processes:
            process.join(END_S)
        for pipe in self.pipes:
            pipe.close()


class Supervised:
    """What runs in processes of its own that share a folder; use as a context manager or call ``close``."""

    folder: TemporaryDirectory[str]
    supervisor: Supervisor | None

    def close(self) -> None:
        """End the processes."""
        if self.supervisor is not None:
            self.supervisor.close()
        self._end()

    def _end(self) -> None:
        if self.supervisor is not None:
            self.supervisor.end()
            self.supervisor = None
        self.folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
