"""A job: one model in one mode, its captures, and the Programs of plans for it."""

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trine.capture.export import Captured, capture
from trine.capture.inputs import Inputs
from trine.capture.mode import in_mode
from trine.capture.model import Model, OptimizerFactory, called
from trine.capture.precision import to_float64
from trine.capture.reference import counted_random, in_float64
from trine.errors import BadInput
from trine.graph.graph import Graph
from trine.measure.operators import optimizer_states
from trine.plan.plan import Plan
from trine.program.compile import Compiled, batches
from trine.run.engine import Step
from trine.run.weights import Weighing


@dataclass
class Job:
    """A model in training (with its loss) or in inference, as it is or in float64.

    Captures are kept by rows of the batch, and the job is never changed by running it.
    """

    model: Model
    training: bool
    float64: bool = False
    captures: dict[int, Captured] = field(default_factory=dict)
    weighings: dict[tuple[tuple[int, int], ...], Weighing] = field(default_factory=dict)
    _module: nn.Module | None = None
    _inputs: Inputs | None = None

    @property
    def batch(self) -> int:
        return self.model.inputs.batch

    @property
    def optimizer(self) -> OptimizerFactory | None:
        """What steps the weights; None: nothing does."""
        return self.model.optimizer if self.training else None

    @property
    def optimizer_states(self) -> float:
        """Numbers that it keeps for each number of a parameter."""
        return optimizer_states(self.model.optimizer) if self.training else 0.0

    @property
    def module(self) -> nn.Module:
        """The module, in float64 a copy."""
        if self._module is None:
            self._module = copied(self.model).double() if self.float64 else self.model.module
        return self._module

    @property
    def inputs(self) -> Inputs:
        """Example inputs and targets."""
        if self._inputs is None:
            own = self.model.inputs
            wide = own.map(lambda t, dim, number: t.double() if t.is_floating_point() else t)
            self._inputs = wide if self.float64 else own
        return self._inputs

    def captured(self, rows: int | None = None) -> Captured:
        """The capture at a number of rows of the batch, all of them by default."""
        rows = rows or self.batch
        if rows not in self.captures:
            self.captures[rows] = capture(self.model, training=self.training, with_loss=self.training, batch=rows)
        return self.captures[rows]

    def graph(self, rows: int | None = None) -> Graph:
        """The graph at a number of rows."""
        graph = self.captured(rows).graph
        return to_float64(graph) if self.float64 else graph

    def graph_for(self, micro_batches: int) -> Graph:
        """The graph of the first, largest micro-batch."""
        if not 1 <= micro_batches <= self.batch:
            raise BadInput(
                f"{micro_batches} micro-batches were asked for.", f"The batch is {self.batch}.",
                f"Give --micro-batches 1 to {self.batch}, or a larger --batch.",
            )  # fmt: skip
        return self.graph(batches(self.batch, micro_batches)[0][1])

    def narrow_graph(self, micro_batches: int) -> Graph:
        """The same in the model's own types, by which plans know it."""
        self.graph_for(micro_batches)
        return self.captured(batches(self.batch, micro_batches)[0][1]).graph

    def compiled(self, plan: Plan, batch: int | None = None) -> Compiled:
        """The Programs of a plan, for the job's batch or another."""
        if batch is None:
            self.graph_for(plan.micro_batches)  # refuses more of them than rows
        rows = batches(batch or self.batch, plan.micro_batches)[0][1]
        frozen, graph = self.captured(rows).frozen, self.graph(rows)
        learning = [t.name for t in graph.by_kind("parameter") if t.name not in frozen]
        return Compiled(self.graph, plan, batch or self.batch, leaves=learning)

    def state(self) -> dict[str, Tensor]:
        """Whole tensors of parameters, buffers and constants by graph name."""
        values = self.captured(next(iter(self.captures), None)).state(self.module)
        if not self.float64:
            return values
        return {name: v.double() if v.is_floating_point() else v for name, v in values.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Whole-batch tensors of the graph's inputs."""
        return self.captured(next(iter(self.captures), None)).flatten(self.inputs)

    @property
    def unmade(self) -> frozenset[int]:
        """Numbers of the outputs of which the graph makes nothing; none where there is no graph."""
        if not self.captures:
            return frozenset()
        graph = next(iter(self.captures.values())).graph
        seen, result = set[str](), set[int]()
        for output in graph.outputs:
            if output.kind == "user" and (output.tensor in seen or graph.tensors[output.tensor].kind != "activation"):
                result.add(int(output.target))
            seen.add(output.tensor)
        return frozenset(result)

    def step(self, plan: Plan, number: int = 0) -> Step:
        """What a step of a plan is given; dropout is drawn from the model's seed."""
        captured = self.captured(next(iter(self.captures), None))
        rows = batches(self.batch, plan.micro_batches)
        constants = {name: v for name, v in self.state().items() if name in captured.constants}
        if rows not in self.weighings:
            self.weighings[rows] = Weighing(self.graph, rows, constants)
        weights = self.weighings[rows].weights(self.tensors())
        return Step(self.tensors(), captured.graph.batch_dims, weights, number, self.model.seed)


def copied(model: Model) -> nn.Module:
    """A copy of the model's module.  Raises BadInput where torch cannot copy it."""
    try:
        return copy.deepcopy(model.module)
    except RuntimeError as error:
        raise BadInput(
            f"{model.name} cannot be copied: {str(error).splitlines()[0]}.",
            "It is held against a copy, and a tensor of it was computed from others (as by the old weight_norm).",
            "Compute such tensors in forward (torch.nn.utils.parametrizations), or detach them.",
        ) from error


@dataclass
class Reference:
    """What one engine makes of a step, by names of the module; weights are those after the last step, else none.

    outputs: of each micro-batch, by number among all leaves of the output; unmade: those of which the graph makes
    nothing, since they are given to the model or are another of its outputs.
    """

    loss: float
    outputs: list[dict[int, Tensor]]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]
    weights: dict[str, Tensor]
    unmade: frozenset[int] = frozenset()


def reference_steps(
    job: Job, rows: tuple[tuple[int, int], ...], shares: tuple[float, ...], num_steps: int,
    nudge: int = 0,
) -> Iterator[Reference]:  # fmt: skip
    """Steps of the plain module on one engine, accumulating over the same micro-batches.

    ``nudge`` first moves every weight by one unit in the last place, which shows how far rounding alone carries: 1 up,
    a larger number up or down as chance, seeded by it, has it.
    """
    module = copy.deepcopy(job.module)
    if nudge:
        _nudge(module, nudge)
    trained = [p for p in module.parameters() if p.requires_grad]
    opt = job.optimizer(trained) if job.optimizer is not None else None
    for number in range(num_steps):
        module.zero_grad(set_to_none=True)
        loss, outputs = 0.0, list[dict[int, Tensor]]()
        for m, (low, high) in enumerate(rows):
            value, leaves = _one(job, module, job.inputs.map(_cut(low, high)), (job.model.seed, number, m))
            outputs.append(leaves)
            if value is not None and shares[m]:
                with in_float64() if job.float64 else nullcontext():
                    (value * shares[m]).backward()  # type: ignore[no-untyped-call]
                loss += float(value.detach()) * shares[m]
        gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        if opt is not None:
            opt.step()
        yield Reference(
            loss, outputs, gradients,
            {n: b.detach().clone() for n, b in module.named_buffers()},
            {n: p.detach().clone() for n, p in module.named_parameters() if number == num_steps - 1},
            job.unmade,
        )  # fmt: skip


def output_tensors(output: object) -> dict[int, Tensor]:
    """The tensors of a module's output without gradients, by number among all its leaves, as graphs count them."""
    return {n: leaf.detach() for n, leaf in enumerate(pytree.tree_leaves(output)) if isinstance(leaf, Tensor)}


def cloned(value: Tensor, dim: int | None, number: int) -> Tensor:
    """A copy of an input, for :meth:`Inputs.map`."""
    return value.clone()


def _nudge(module: nn.Module, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            p = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            up = torch.full_like(p, float("inf"))
            if number > 1:
                up[torch.rand(p.shape, generator=generator) < 0.5] = float("-inf")
            p.copy_(torch.nextafter(p, up))


def _cut(low: int, high: int) -> Callable[[Tensor, int | None, int], Tensor]:
    return lambda t, dim, number: t if dim is None else t.narrow(dim, low, high - low)


def _one(
    job: Job, module: nn.Module, inputs: Inputs, clock: tuple[int, int, int]
) -> tuple[Tensor | None, dict[int, Tensor]]:
    """Loss and output tensors of one micro-batch of the plain module, which may change its inputs: these are copies."""
    model, inputs = job.model, inputs.map(cloned)
    wide = in_float64() if job.float64 else nullcontext()
    with in_mode(module, job.training), counted_random(*clock), wide, torch.set_grad_enabled(job.training):
        loss, output = called(module, model.loss, inputs, training=job.training)
    return loss, output_tensors(output)
