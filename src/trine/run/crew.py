"""Crews: the engines that a parallel module calls, on threads of this process or in the processes that are there."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trine.program.program import Tile
from trine.run.engine import Engine, Step
from trine.run.form import Form, Parts, at_rest, whole
from trine.run.gloo import Gloo
from trine.run.joined import alike, connect, leave, transport
from trine.run.threads import Threads


@dataclass
class Flight:
    """What one engine keeps of a call from forward to backward."""

    state: dict[str, Tensor]
    values: dict[Any, Tensor]
    tape: dict[Any, Any]


class Crew(ABC):
    """Abstract: engines that run the forward and the backward part of forms.

    Those of this process are ``engines(form)``; ``together`` makes of their tiles those of all.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @abstractmethod
    def engines(self, form: Form) -> list[Engine]:
        """The engines of this process, which know the form's Programs."""

    @abstractmethod
    def go(self, form: Form, step: Step) -> None:
        """One part of a step, on every engine."""

    @abstractmethod
    def together(self, parts: Parts) -> Parts:
        """Tiles of all engines, from those of this process."""

    @abstractmethod
    def agreed(self, form: Form, seed: int, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> int:
        """The seed of a call on all engines.  Raises BadInput where they are given different tensors."""

    @abstractmethod
    def close(self) -> None:
        """End what was started."""

    def forward(self, form: Form, step: Step, state: Mapping[str, Tensor]) -> tuple[list[Flight], Parts]:
        """Run the forward part: what is kept, and the tiles of results and changed buffers."""
        with self.lock:
            engines = self.engines(form)
            flights = [Flight(at_rest(form.programs[e.transport.rank], state), {}, {}) for e in engines]
            flights = self._part(form, replace(step, part="forward"), engines, flights)
            made: dict[str, list[tuple[Tile, Tensor]]] = {}
            for engine, flight in zip(engines, flights, strict=True):
                program = engine.program
                found = [(program.tiles[t], flight.values[t, 0]) for t in program.results if (t, 0) in flight.values]
                found += [(program.tiles[t], flight.state[name]) for t, name in program.updates.items()]
                for tile, value in found:
                    made.setdefault(tile.tensor, []).append((tile, value))
                flight.values = {}
            return flights, self.together(made)

    def backward(self, form: Form, gradients: Mapping[str, Tensor], flights: Sequence[Flight]) -> dict[str, Tensor]:
        """Run the backward part: from gradients of results to those of leaves that any gradient reached."""
        step = Step({}, {}, (1.0,), gradients=gradients, part="backward")
        with self.lock:
            engines = self.engines(form)
            self._part(form, step, engines, flights)
            rests, feeds = _gradients(form, engines)
            for engine in engines:
                engine.gradients, engine.grads = {}, {}
            rests, feeds = self.together(rests), self.together(feeds)
        result = {name: _resting(parts) for name, parts in rests.items()}
        return result | {name: whole(parts, add=True) for name, parts in feeds.items()}

    def _part(self, form: Form, step: Step, engines: Sequence[Engine], flights: Sequence[Flight]) -> list[Flight]:
        """Run one part with what was kept, and take out what is to be kept."""
        for engine, own in zip(engines, flights, strict=True):
            engine.state, engine.values, engine.tape = own.state, own.values, own.tape
        self.go(form, step)
        result = [Flight(e.state, e.values, e.tape) for e in engines]
        for engine in engines:
            engine.state, engine.values, engine.tape = {}, {}, {}
        return result


class OwnThreads(Crew):
    """The threads of a plan, started with the first form and shared by all."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: Threads | None = None
        self.variants: dict[Form, int] = {}

    def engines(self, form: Form) -> list[Engine]:
        if self.threads is None:
            self.threads, self.variants = Threads(form.programs, form.blank()), {form: 0}
        elif form not in self.variants:
            added = [e.add(p) for e, p in zip(self.threads.engines, form.programs, strict=True)]
            self.variants[form] = added[0]
        return self.threads.engines

    def go(self, form: Form, step: Step) -> None:
        assert self.threads is not None
        try:
            self.threads.step(replace(step, variant=self.variants[form]), tensors=False)
        except BaseException:  # an engine failed, or the user interrupted
            self.threads = None  # they have ended
            raise

    def together(self, parts: Parts) -> Parts:
        return parts

    def agreed(self, form: Form, seed: int, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> int:
        return seed

    def close(self) -> None:
        """End the threads; one of them may be the caller, when it collects garbage."""
        threads, self.threads = self.threads, None
        if threads is None:
            return
        threads.close()


class TheirProcesses(Crew):
    """This process is one engine among those that somebody else started; all call the same with the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.owns_group = False
        self.known: dict[Form, tuple[Engine, Gloo]] = {}

    def engines(self, form: Form) -> list[Engine]:
        return [self._engine(form)[0]]

    def _engine(self, form: Form) -> tuple[Engine, Gloo]:
        if form not in self.known:
            program = form.programs[dist.get_rank()]
            gloo = transport(program)
            self.known[form] = Engine(program, form.blank(), gloo), gloo
        return self.known[form]

    def go(self, form: Form, step: Step) -> None:
        engine, gloo = self._engine(form)
        gloo.begin(step.part)
        with torch.autocast("cpu", enabled=False):  # the caller's is in the graph already
            for _ in engine.run(step):
                pass
        gloo.finish()

    def together(self, parts: Parts) -> Parts:
        mine = {name: [(tile, _alone(value)) for tile, value in tiles] for name, tiles in parts.items()}
        told: list[Parts] = [mine] * dist.get_world_size()
        dist.all_gather_object(told, mine)
        result: dict[str, list[tuple[Tile, Tensor]]] = {}
        for of_rank in told:
            for name, tiles in of_rank.items():
                result.setdefault(name, []).extend(tiles)
        return result

    def agreed(self, form: Form, seed: int, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> int:
        self.owns_group = connect(len(form.programs)) or self.owns_group
        alike(inputs, "were given different batches", "Give each the whole batch; it takes its own rows.")
        if form not in self.known:
            own = {name: value for name, value in state.items() if name not in inputs}
            alike(own, "have different weights", "Seed torch in the same way, or load the same file.")
        seeds = [seed]
        dist.broadcast_object_list(seeds)
        return seeds[0]

    def close(self) -> None:
        """Leave the process group, if it was made here."""
        self.known.clear()
        if self.owns_group:
            leave()


def _alone(value: Tensor) -> Tensor:
    """A tensor that is not a view of something larger, all of which would be sent."""
    return value.clone() if value.untyped_storage().nbytes() > value.nbytes else value


def _gradients(form: Form, engines: Sequence[Engine]) -> tuple[Parts, Parts]:
    """Gradients in the tiles in which parameters rest, each told by the first engine that has it, and those of inputs,
    which are to be added."""
    rests: dict[str, list[tuple[Tile, Tensor]]] = {}
    feeds: dict[str, list[tuple[Tile, Tensor]]] = {}
    for engine in engines:
        program = engine.program
        told = {n for c in program.combines.values() if c.group[0] != program.rank for n in c.parameters}
        for tile, name in program.parameters.items():
            if name in engine.gradients and name in form.leaves and name not in told:
                rests.setdefault(name, []).append((program.tiles[tile], engine.gradients[name]))
        for tile, name in program.feeds.items():
            if (tile, 0) in engine.grads and name in form.leaves:
                feeds.setdefault(name, []).append((program.tiles[tile], engine.grads[tile, 0]))
    return rests, feeds


def _resting(parts: Sequence[tuple[Tile, Tensor]]) -> Tensor:
    """The whole of a parameter's gradient; a tile that has all of it is taken as it is."""
    complete = next((value for tile, value in parts if tile.local_shape == tile.shape), None)
    return whole(parts) if complete is None else complete
