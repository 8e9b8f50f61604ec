"""``train_step``: training steps by a plan, micro-batches included; weights and optimizer live with the engines."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trine.capture.inputs import Inputs
from trine.capture.model import Loss, make_model
from trine.errors import BadInput
from trine.plan.build import check, same_batch
from trine.plan.file import Answer, given_plan
from trine.plan.plan import Plan
from trine.program.compile import batches
from trine.program.program import Program
from trine.run.collect import report, together
from trine.run.engine import Engine, Step
from trine.run.job import Job
from trine.run.runner import Optimizer, runner
from trine.run.weights import Weighing


def train_step(
    module: nn.Module, plan: Plan | Answer | Path | str, *, loss: Loss | None = None, optimizer: Optimizer, inputs: Any,
    targets: Any = None, batch_dims: dict[str, int | None] | None = None, on: str | None = None, seed: int = 0,
) -> "TrainStep":  # fmt: skip
    """Training steps: ``step(batch) -> loss`` with ``batch = (inputs, targets)`` in the structure of the example.

    loss: of the module's output and the targets; None: the module takes the targets as keyword arguments and its output
        has the attribute ``loss``.
    optimizer: an ``OptimizerSpec`` or a function of a list of parameters; each engine has its own, for its tiles.
    on: threads, lockstep or processes; or joined, the processes that are there, each of which calls this with the same
        arguments and gives each step the whole batch.  By default joined under ``torchrun``, else threads.

    The module gives the first weights and is not changed; ``step.state_dict()`` has what they became.  Raises
    PlanMismatch for a plan of another model.
    """
    plan = given_plan(plan)
    if not callable(optimizer):
        raise BadInput(
            f"An {type(optimizer).__name__} was given as optimizer.", "Each engine makes its own, for its tiles.",
            'Give a function of the parameters, or OptimizerSpec("adam", lr=0.01).',
        )  # fmt: skip
    hooked = [n for n, p in module.named_parameters() if p._backward_hooks or p._post_accumulate_grad_hooks]
    if hooked:
        raise BadInput(
            f"The parameter {hooked[0]} has a hook on its gradient.", "Engines have tiles of it, and run no hooks.",
            "Remove it, or use trine.parallelize, whose gradients arrive at the parameters themselves.",
        )  # fmt: skip
    model = make_model(module, inputs, targets, loss, batch_dims=batch_dims, name=plan.model)
    job = Job(model, training=True)
    same_batch(plan, job.batch)
    check(plan, job.graph_for(plan.micro_batches), job.batch)
    return TrainStep(job, plan, optimizer, on or ("joined" if dist.is_torchelastic_launched() else "threads"), seed)


class TrainStep:
    """Engines that train; use as a context manager or call ``close``.

    A last, smaller batch runs by Programs of its own on the same engines, with as many micro-batches as it has rows if
    these are fewer; on processes, joined or not, only batches of the example's size run.
    """

    def __init__(self, job: Job, plan: Plan, optimizer: Optimizer, on: str, seed: int = 0) -> None:
        self.job, self.plan, self.on, self.seed, self.number = job, plan, on, seed, 0
        programs = job.compiled(plan).programs()
        self.captured = job.captured(next(iter(job.captures)))
        self.rests = [_rests(program) for program in programs]
        self.variants = {job.batch: 0}
        self.weighings: dict[tuple[tuple[int, int], ...], Weighing] = {}
        self.state: dict[str, Tensor] | None = None
        self.runner = runner(on, programs, job.state(), optimizer)

    @property
    def engines(self) -> list[Engine]:
        """The engines, where they are in this process: none on processes."""
        return list(getattr(self.runner, "engines", ()))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The engines' optimizers, for schedules of the learning rate; none on processes."""
        return [engine.optimizer for engine in self.engines if engine.optimizer is not None]

    def __call__(self, batch: tuple[Any, Any]) -> Tensor:
        """One step; the loss of the whole batch before it, as a number without gradient."""
        inputs, rows = self._inputs(batch), 0
        rows = inputs.batch
        variant = self._variant(rows)
        parts = batches(rows, min(self.plan.micro_batches, rows))
        tensors = self.captured.flatten(inputs)
        if parts not in self.weighings:
            self.weighings[parts] = Weighing(self.job.graph, parts, self.captured.constants)
        weights = self.weighings[parts].weights(tensors)
        step = Step(tensors, self.captured.graph.batch_dims, weights, self.number, self.seed, variant=variant)
        whole = self.runner.step(step, tensors=not self.engines)
        self.number, self.state = self.number + 1, whole.state or None
        loss = whole.loss(weights)
        assert loss is not None
        return loss.detach()

    def state_dict(self) -> dict[str, Tensor]:
        """Whole parameters and buffers by the names of the module, as its own ``state_dict``."""
        own = dict(self.job.module.state_dict())
        if self.engines:
            values = together([report(e, Step({}, {}, ()), tensors=True) for e in self.engines]).state
        else:
            values = self.state or {}
        names = self.captured.parameters.items()
        known = {name: values[tensor] for tensor, own_names in names if tensor in values for name in own_names}
        return {name: known.get(name, value).detach().clone() for name, value in own.items()}

    def close(self) -> None:
        """End the engines."""
        self.runner.close()

    def __enter__(self) -> "TrainStep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _inputs(self, batch: tuple[Any, Any]) -> Inputs:
        """A batch as inputs, held against the example."""
        example, model = self.job.inputs, self.job.model
        inputs, targets = batch
        given = make_model(model.module, inputs, targets, model.loss, batch_dims=model.batch_dims).inputs
        mine, theirs = (pytree.tree_flatten((x.args, x.kwargs, x.targets)) for x in (example, given))
        if mine[1] != theirs[1]:
            raise BadInput(
                "The batch has another structure than the example.", f"The example: {mine[1]}.",
                "Give step((inputs, targets)) as in train_step(inputs=…, targets=…).",
            )  # fmt: skip
        for a, b, dim in zip(mine[0], theirs[0], example.leaf_dims(), strict=True):
            if not isinstance(a, Tensor) or not isinstance(b, Tensor):
                if a is b or (type(a) is type(b) and not isinstance(a, Tensor) and a == b):
                    continue
                raise BadInput(
                    f"The batch has {_told(b)} where the example has {_told(a)}.",
                    "A plain value is fixed when the step is made.", "Make it a tensor, or a step of its own.",
                )  # fmt: skip
            if (_without(a, dim), a.dtype) != (_without(b, dim), b.dtype):
                raise BadInput(
                    f"The batch has a tensor of shape {tuple(b.shape)} and type {b.dtype}.",
                    f"The example's is {tuple(a.shape)}, {a.dtype}; only the batch may differ.",
                )  # fmt: skip
        return given

    def _variant(self, rows: int) -> int:
        """The number of the engines' Programs for a size of batch."""
        if rows in self.variants:
            return self.variants[rows]
        if rows > self.job.batch or not self.engines:
            can = f"1 to {self.job.batch}" if self.engines else f"{self.job.batch}, as there are processes"
            raise BadInput(
                f"A batch of {rows} was given.", f"The example's is {self.job.batch}; possible: {can}.",
                "Make the step with an example of the largest batch, or leave out the last, smaller one.",
            )  # fmt: skip
        plan = replace(self.plan, micro_batches=min(self.plan.micro_batches, rows))
        programs = self.job.compiled(plan, rows).programs()
        if [_rests(program) for program in programs] != self.rests:
            raise BadInput(
                f"A batch of {rows} was given, for which weights would rest elsewhere.",
                f"A batch of {self.job.batch} can be served.", "Leave out the last, smaller batch.",
            )  # fmt: skip
        added = [engine.add(program) for engine, program in zip(self.engines, programs, strict=True)]
        self.variants[rows] = added[0]
        return added[0]


def _rests(program: Program) -> dict[str, Any]:
    """What rests on an engine, and which part."""
    tiles = {**program.parameters, **program.stored}
    return {name: program.tiles[tile].box for tile, name in tiles.items()}


def _told(value: Any) -> str:
    return "a tensor" if isinstance(value, Tensor) else repr(value)[:40]


def _without(value: Tensor, dim: int | None) -> Sequence[int]:
    return tuple(n for d, n in enumerate(value.shape) if d != dim)
