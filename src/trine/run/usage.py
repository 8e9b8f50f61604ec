"""Memory that a step takes, measured in processes that have done nothing else.

For engines that are threads, and for the plain module, the process is forked from a server that has imported torch and
started nothing.  It makes the engines, runs two steps, forgets its highest size so far, and runs two more: what it then
was at most is *resident*.  Then it makes them anew and watches them (:mod:`trine.run.live`): what was alive at most is
*tensors*, without the inputs of the model, which are the caller's.  Engines that are threads share the process, so both
are of all of them together.  Engines that are processes do the same, each by itself.
"""

import pickle
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trine.capture.from_file import load_file
from trine.capture.model import sgd
from trine.errors import BadInput
from trine.measure.allocator import keep_memory
from trine.program.program import Program
from trine.run.engine import Step
from trine.run.job import Job
from trine.run.live import Live
from trine.run.memory import Usage, forget_highest, highest_bytes
from trine.run.plain import Plain
from trine.run.processes import OPTIMIZER_IMPORTS, Processes, picklable
from trine.run.replicas import user_files
from trine.run.supervisor import Supervisor
from trine.run.threads import Threads
from trine.run.wire import pack

NUM_STEPS = 2
Watched = Callable[[], AbstractContextManager[None]]
Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Run:
    """Something that makes steps.  given_bytes: of tensors that it has from outside."""

    step: Callable[[], object]
    close: Callable[[], None]
    given_bytes: int


@dataclass(frozen=True)
class Setup:
    """What the process is told; what it runs is in the file ``content``.

    kind: ``threads``, then that is (programs, state, step), or ``plain``, then it is (model, training).
    """

    kind: str
    optimizer: bytes
    files: dict[str, str]
    num_threads: int = 1


def usage_of_programs(programs: tuple[Program, ...], job: Job, step: Step, optimizer: Optimizer | None) -> Usage:
    """Of engines that are threads."""
    used = {name for p in programs for name in (*p.parameters.values(), *p.stored.values())}
    state = {name: value.detach() for name, value in job.state().items() if name in used}
    return _measured("threads", (programs, state, step), optimizer)


def usage_of_processes(
    programs: tuple[Program, ...], job: Job, step: Step, optimizer: Optimizer | None, num_steps: int = NUM_STEPS
) -> list[Usage]:
    """Of engines that are processes, each by itself."""
    found = []
    for watched in (False, True):
        with Processes(programs, job.state(), optimizer, watched=watched) as engines:
            found.append(engines.usage(step, num_steps))
    return [Usage(theirs.tensors, own.resident) for own, theirs in zip(*found, strict=True)]


def usage_of_module(job: Job, num_threads: int, optimizer: Optimizer | None) -> Usage:
    """Of the plain module."""
    return _measured("plain", (replace(job.model, optimizer=sgd), job.training), optimizer, num_threads)


def _measured(kind: str, content: Any, optimizer: Optimizer | None, num_threads: int = 1) -> Usage:
    with tempfile.TemporaryDirectory(prefix="trine-") as folder:
        pickled = picklable(optimizer)
        try:
            torch.save(content, Path(folder) / "content")
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise BadInput(
                f"The model cannot be sent to another process: {error}.",
                "Its memory is measured in one; its classes and its loss must then be defined at the top of a file.",
                "Define a lambda or an inner function there by its own name.",
            ) from None
        setup = Setup(kind, pickled, user_files(), num_threads)
        (Path(folder) / "engine0").write_bytes(pickle.dumps(setup))
        with_main = b"__main__" in pickled + (Path(folder) / "content").read_bytes()[: 1 << 20]
        supervisor = Supervisor(
            1, folder, "forkserver", with_main=with_main, preload=(__name__, *OPTIMIZER_IMPORTS), start=start
        )
        try:
            supervisor.wait_ready()
            supervisor.send(0, pack(None))
            answer: Usage = supervisor.gather()[0]
            supervisor.close()
        finally:
            supervisor.end()
    return answer


def start(setup: Setup, directory: Path) -> Callable[[None], Usage]:
    """In the process: what is given back measures it."""
    keep_memory()
    torch.set_num_threads(setup.num_threads)
    for name, path in setup.files.items():
        load_file(Path(path), name)
    load = partial(torch.load, directory / "content", mmap=True, weights_only=False)
    make = partial(RUNS[setup.kind], pickle.loads(setup.optimizer), setup.num_threads)
    return lambda message: Usage(resident=resident(load, make), tensors=tensors(load, make))


def threads(optimizer: Optimizer | None, num_threads: int, watched: Watched, content: Any) -> Run:
    """Engines that are threads."""
    programs, state, step = content
    engines = Threads(programs, state, optimizer)
    engines.watched = watched
    return Run(lambda: engines.step(step, tensors=False), engines.close, 0)


def plain(optimizer: Optimizer | None, num_threads: int, watched: Watched, content: Any) -> Run:
    """The plain module, whose weights lie in the file and are copied page by page when they change."""
    model, training = content
    module = Plain(Job(model, training), optimizer, num_threads, copied=False)
    module.watched = watched
    weights = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in model.module.state_dict().values()}
    return Run(module.step, module.close, sum(weights.values()))


Make = Callable[[Watched, Any], Run]
RUNS: dict[str, Callable[[Optimizer | None, int, Watched, Any], Run]] = {"threads": threads, "plain": plain}


def resident(load: Callable[[], Any], make: Make) -> int | None:
    """The highest resident size in two steps after two others."""
    run = make(nullcontext, load())
    for _ in range(NUM_STEPS):
        run.step()
    forget_highest()
    for _ in range(NUM_STEPS):
        run.step()
    run.close()
    return highest_bytes()


def tensors(load: Callable[[], Any], make: Make) -> int:
    """The most that is alive at once, in a run that is watched from its beginning: the allocator tells of a release
    only where it told of the allocation."""
    live, content = Live(), load()  # a mapped file is told of as well
    with live.watched():
        run = make(live.watched, content)
        for _ in range(NUM_STEPS):
            run.step()
        run.close()
    return run.given_bytes + live.peak()
