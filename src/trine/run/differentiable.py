"""Programs as one function of torch's autograd: from a module's own tensors to its results, and back.

Engines read the parameters as they are at each call: a tile is a view of its parameter, a copy only where it has
several intervals.  What an engine keeps from forward to backward belongs to the call and goes with the call's graph,
so any number of calls may be under way.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trine.errors import BadInput
from trine.graph.graph import Graph
from trine.run.crew import Crew, Flight
from trine.run.engine import Step
from trine.run.form import Form, whole


class Call:
    """One pass through a form.  ``owner`` is kept until the backward pass, and the threads with it."""

    def __init__(self, owner: object, crew: Crew, form: Form) -> None:
        self.owner, self.crew, self.form = owner, crew, form
        self.flights: list[Flight] | None = None
        self.buffers: dict[str, Tensor] = {}

    def forward(
        self, inputs: Mapping[str, Tensor], dims: Mapping[str, int], state: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """The form's outputs, whole; ``buffers`` has the new values."""
        form = self.form
        seed = self.crew.agreed(form, int(torch.randint(1 << 31, ())) if form.has_draws else 0, inputs, state)
        flights, made = self.crew.forward(form, Step(inputs, dims, (1.0,), seed=seed), state)
        self.buffers = {o.target: whole(made[o.tensor]) for o in form.graph.outputs if o.kind == "buffer"}
        self.flights = flights if form.leaves else None
        return [whole(made[name]) for name in form.outputs]

    def backward(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the form's leaves; None where no gradient leads."""
        if self.flights is None:
            raise BadInput(
                "backward was called a second time on the results of one forward pass.", "What it needs is gone.",
                "Call the module again, or add the losses before backward.",
            )  # fmt: skip
        form, flights = self.form, self.flights
        given = {name: g for name, g in zip(form.outputs, gradients, strict=True) if g is not None}
        targets = {o.tensor: o.target for o in reversed(form.graph.outputs) if o.kind == "user"}
        self.flights = None
        found = self.crew.backward(form, {targets[name]: g for name, g in given.items()}, flights)
        self.owner = None
        reached = reaching(form.graph, given)
        return [found.get(name) if name in reached else None for name in form.leaves]


class Through(torch.autograd.Function):
    """A call whose gradients torch asks for."""

    @staticmethod
    def forward(ctx: Any, call: Call, given: tuple[Any, ...], *leaves: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        outputs = call.forward(*given)
        names = zip(outputs, call.form.outputs, strict=True)
        ctx.mark_non_differentiable(*(value for value, name in names if name not in call.form.active))
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.call.backward(gradients))


def reaching(graph: Graph, outputs: Collection[str]) -> set[str]:
    """Tensors that a gradient of the outputs gets to."""
    result = set(outputs)
    for op in reversed(graph.operators):
        if op.base != "detach" and not result.isdisjoint(name for name in op.outputs if name is not None):
            result.update(op.inputs)
    return result
