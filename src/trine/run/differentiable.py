"""Programs as one function of torch's autograd: from a module's own tensors to its results, and back.

Engines read the parameters as they are at each call: a tile is a view of its parameter, a copy only where it has
several intervals.  What an engine keeps from forward to backward belongs to the call and goes with the call's graph,
so any number of calls may be under way.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trine.capture.export import Captured
from trine.errors import BadInput
from trine.graph.graph import Graph
from trine.lower.tiles import put, take
from trine.plan.plan import Plan
from trine.program.compile import Compiled
from trine.program.program import Tile
from trine.run.engine import Engine, Step
from trine.run.threads import Threads

RANDOM = ("trine.dropout", "trine.bernoulli")


class Form:
    """The Programs for one capture, with a backward pass to some of its leaves (parameters and inputs)."""

    def __init__(self, captured: Captured, plan: Plan, batch: int, leaves: Collection[str]) -> None:
        graph = captured.graph
        compiled = Compiled(lambda rows: graph, plan, batch, leaves=leaves, seeds="user")
        self.graph, self.programs = graph, compiled.programs()
        made = {name for op in graph.operators for name in op.outputs}
        users = dict.fromkeys(o.tensor for o in graph.outputs if o.kind == "user")
        self.outputs = [name for name in users if name in made]
        self.active = compiled.active
        self.leaves = [name for name in leaves if name in self.active]
        self.has_draws = any(op.target in RANDOM for op in graph.operators)

    def tiles(self, state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """What each engine has at rest."""
        return [
            {name: take(state[name], p.tiles[t].box) for t, name in {**p.parameters, **p.stored}.items()}
            for p in self.programs
        ]


@dataclass
class Flight:
    """What one engine keeps of a call."""

    state: dict[str, Tensor]
    values: dict[Any, Tensor]
    tape: dict[Any, Any]


class Engines:
    """The threads of a plan, started with the first Program and shared by all."""

    def __init__(self) -> None:
        self.threads: Threads | None = None
        self.variants: dict[Form, int] = {}
        self.lock = threading.Lock()

    def forward(self, form: Form, step: Step, tiles: Sequence[dict[str, Tensor]]) -> list[Flight]:
        """Run the forward part."""
        return self._run(form, replace(step, part="forward"), [Flight(own, {}, {}) for own in tiles])

    def backward(self, form: Form, gradients: Mapping[str, Tensor], flights: Sequence[Flight]) -> dict[str, Tensor]:
        """Run the backward part: from gradients of results to those of leaves that any gradient reached."""
        step = Step({}, {}, (1.0,), gradients=gradients, part="backward")
        with self.lock:
            engines = self._engines(form)
            self._go(form, step, engines, flights)
            result = {name: _gradient(name, engines) for name in form.leaves}
            for engine in engines:
                engine.gradients, engine.grads = {}, {}
        return {name: value for name, value in result.items() if value is not None}

    def _run(self, form: Form, step: Step, flights: Sequence[Flight]) -> list[Flight]:
        with self.lock:
            return self._go(form, step, self._engines(form), flights)

    def _go(self, form: Form, step: Step, engines: Sequence[Engine], flights: Sequence[Flight]) -> list[Flight]:
        """Run one part with what was kept, and take out what is to be kept."""
        assert self.threads is not None
        for engine, own in zip(engines, flights, strict=True):
            engine.state, engine.values, engine.tape = own.state, own.values, own.tape
        try:
            self.threads.step(replace(step, variant=self.variants[form]), tensors=False)
        except BaseException:  # an engine failed, or the user interrupted
            self.threads = None  # they have ended
            raise
        result = [Flight(e.state, e.values, e.tape) for e in engines]
        for engine in engines:
            engine.state, engine.values, engine.tape = {}, {}, {}
        return result

    def _engines(self, form: Form) -> list[Engine]:
        """The engines, which know the form's Programs."""
        if self.threads is None:
            used = {tile.tensor: tile for p in form.programs for tile in p.tiles.values()}
            state = {n: torch.empty(t.shape, dtype=getattr(torch, t.dtype), device="meta") for n, t in used.items()}
            self.threads, self.variants = Threads(form.programs, state), {form: 0}
        elif form not in self.variants:
            added = [e.add(p) for e, p in zip(self.threads.engines, form.programs, strict=True)]
            self.variants[form] = added[0]
        return self.threads.engines

    def close(self) -> None:
        """End the threads; one of them may be the caller, when it collects garbage."""
        threads, self.threads = self.threads, None
        if threads is None:
            return
        for job in threads.jobs:
            job.put(None)
        for worker in threads.workers:
            if worker is not threading.current_thread():
                worker.join()


class Call:
    """One pass through a form.  ``owner`` is kept until the backward pass, and the threads with it."""

    def __init__(self, owner: object, engines: Engines, form: Form) -> None:
        self.owner, self.engines, self.form = owner, engines, form
        self.flights: list[Flight] | None = None
        self.buffers: dict[str, Tensor] = {}

    def forward(
        self, inputs: Mapping[str, Tensor], dims: Mapping[str, int], state: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """The form's outputs, whole; ``buffers`` has the new values."""
        form = self.form
        seed = int(torch.randint(1 << 31, ())) if form.has_draws else 0
        step = Step(inputs, dims, (1.0,), seed=seed)
        flights = self.engines.forward(form, step, form.tiles(state))
        cuts: dict[str, list[tuple[Tile, Tensor]]] = {}
        for program, flight in zip(form.programs, flights, strict=True):
            made = [(program.tiles[t], flight.values[t, 0]) for t in program.results if (t, 0) in flight.values]
            made += [(program.tiles[t], flight.state[name]) for t, name in program.updates.items()]
            for tile, value in made:
                cuts.setdefault(tile.tensor, []).append((tile, value))
            flight.values = {}
        self.buffers = {o.target: whole(cuts[o.tensor]) for o in form.graph.outputs if o.kind == "buffer"}
        self.flights = flights if form.leaves else None
        return [whole(cuts[name]) for name in form.outputs]

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
        found = self.engines.backward(form, {targets[name]: g for name, g in given.items()}, flights)
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


def whole(parts: Sequence[tuple[Tile, Tensor]], *, add: bool = False) -> Tensor:
    """A new tensor from its tiles; they are added, or agree where they overlap."""
    tile, value = parts[0]
    result = torch.zeros(tile.shape, dtype=value.dtype)
    for tile, value in parts:
        put(result, tile.box, value, add=add)
    return result


def reaching(graph: Graph, outputs: Collection[str]) -> set[str]:
    """Tensors that a gradient of the outputs gets to."""
    result = set(outputs)
    for op in reversed(graph.operators):
        if op.base != "detach" and not result.isdisjoint(name for name in op.outputs if name is not None):
            result.update(op.inputs)
    return result


def _gradient(name: str, engines: Sequence[Engine]) -> Tensor | None:
    """Gradient of a parameter, from the tiles in which it rests, or of an input: the sum over its tiles."""
    rests: list[tuple[Tile, Tensor]] = []
    feeds: list[tuple[Tile, Tensor]] = []
    for engine in engines:
        program = engine.program
        if name in engine.gradients:
            tile = next(t for t, own in program.parameters.items() if own == name)
            if program.tiles[tile].local_shape == program.tiles[tile].shape:
                return engine.gradients[name]
            rests.append((program.tiles[tile], engine.gradients[name]))
        for tile, own in program.feeds.items():
            if own == name and (tile, 0) in engine.grads:
                feeds.append((program.tiles[tile], engine.grads[tile, 0]))
    if rests:
        return whole(rests)
    return whole(feeds, add=True) if feeds else None
