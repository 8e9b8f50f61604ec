"""The plain module on one engine or on all cores of the machine: what every plan is compared with."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from trine.capture.mode import in_mode
from trine.capture.model import called
from trine.capture.own_error import is_memory, own_error
from trine.errors import EngineFailed, TrineError
from trine.run.job import Job, cloned


class Plain:
    """A copy of a job's module in a thread of its own, with a number of intra-op threads.

    A step is forward, and in training backward and optimizer, over the whole batch.
    """

    def __init__(
        self, job: Job, optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None, num_threads: int, *,
        copied: bool = True,
    ) -> None:  # fmt: skip
        """``copied``: train a copy, on copies of the inputs; else the job's own module."""
        self.job, self.num_threads = job, num_threads
        self.inputs = job.inputs.map(cloned) if copied else job.inputs  # which the module may change
        self.watched: Callable[[], AbstractContextManager[None]] = nullcontext  # around each step
        self.module = copy.deepcopy(job.module) if copied else job.module
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = optimizer(trained) if optimizer is not None and job.training else None
        self.jobs: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.done: SimpleQueue[Any] = SimpleQueue()
        self.worker = threading.Thread(target=self._work, name="plain", daemon=True)
        self.worker.start()

    def _work(self) -> None:
        torch.set_num_threads(self.num_threads)
        while (call := self.jobs.get()) is not None:
            try:
                with self.watched():
                    result = call()
                self.done.put(result)
            except Exception as error:  # noqa: BLE001  raised again in the caller's thread
                self.done.put(error)

    def _do(self, call: Callable[[], Any]) -> Any:
        self.jobs.put(call)
        result = self.done.get()
        if isinstance(result, Exception):
            raise result
        return result

    def step(self) -> float | None:
        """One step; the loss in training."""
        result: float | None = self._do(self._step)
        return result

    def _step(self) -> float | None:
        model, inputs = self.job.model, self.inputs
        with in_mode(self.module, self.job.training):
            if not self.job.training:
                with torch.inference_mode():
                    self.module(*inputs.args, **inputs.kwargs)
                return None
            if self.optimizer is not None:
                self.optimizer.zero_grad(set_to_none=True)
            loss, _ = called(self.module, model.loss, inputs, training=True)
            assert loss is not None
            loss.backward()  # type: ignore[no-untyped-call]
            if self.optimizer is not None:
                self.optimizer.step()
            return float(loss.detach())

    def close(self) -> None:
        """End the thread."""
        self.jobs.put(None)
        self.worker.join()


def check_runs(job: Job) -> None:
    """Raise BadInput, naming the line, where the plain module itself does not run."""
    plain = Plain(Job(job.model, job.training), None, 1)
    try:
        plain.step()
    except TrineError:
        raise
    except Exception as error:  # whatever the user's code raises
        if is_memory(error):
            raise
        raise own_error(job.model.name, error) from error
    finally:
        plain.close()


@contextmanager
def own_errors(job: Job) -> Iterator[None]:
    """Around work on a job: an error that its plain module raises by itself is BadInput."""
    try:
        yield
    except Exception as error:  # whatever the user's code raises, here or on an engine
        if isinstance(error, EngineFailed) or not (isinstance(error, TrineError) or is_memory(error)):
            check_runs(job)
        raise
