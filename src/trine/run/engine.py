"""The executor of one engine: a table from kinds of instruction to functions.

Autograd runs inside a segment only.  A segment's inputs are detached, its outputs are passed on without their graph
and only gradient edges are kept, so that a value lives no longer than its last reader.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from trine.graph.part import shape_of, volume
from trine.lower.clock import RandomClock, set_clock
from trine.lower.segment import Library
from trine.lower.tiles import put, take
from trine.program.program import Instruction, Piece, Program, Tile, Transfer
from trine.run.combine import Combining
from trine.run.transport import Transport, empty

Running = Generator[None, None, None]
Key = tuple[int, int | None]  # tile, micro-batch
Code = Callable[..., tuple[Tensor, ...]]


@dataclass
class Step:
    """What one step is given and what it leaves.

    inputs: whole-batch tensors by graph name; weights: the share of each micro-batch's loss; losses: by micro-batch,
    where this engine makes the loss; results: (tile, micro-batch) → value.
    variant: which of the engine's Programs; part: what is before the first backward pass, what is from there on, or
    all; gradients: of the whole results by their target, where gradients begin there.
    """

    inputs: Mapping[str, Tensor]
    batch_dims: Mapping[str, int]
    weights: tuple[float, ...]
    number: int = 0
    seed: int = 0
    losses: dict[int, Tensor] = field(default_factory=dict)
    results: dict[Key, Tensor] = field(default_factory=dict)
    variant: int = 0
    part: Literal["all", "forward", "backward"] = "all"
    gradients: Mapping[str, Tensor] = field(default_factory=dict)


class Engine:
    """One engine's state (parameters, buffers, values in flight) and its way through the Program.

    ``recorder`` is told each instruction with the times at which it began and ended (see :mod:`trine.run.record`).
    """

    recorder: Callable[[Instruction, float, float], None] | None = None

    def __init__(
        self, program: Program, state: Mapping[str, Tensor], transport: Transport, library: Library | None = None,
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
    ) -> None:  # fmt: skip
        """``state``: whole tensors of parameters, buffers and constants; the engine copies its tiles."""
        self.library, self.transport = library or Library(), transport
        self.programs: list[tuple[Program, dict[int, Code], Combining]] = []
        self.add(program)
        self.program, self.code, self.combining = self.programs[0]
        names = {**program.parameters, **program.stored}
        self.state: dict[str, Tensor] = {}
        for tile, name in names.items():
            if name not in self.state:
                self.state[name] = take(state[name], program.tiles[tile].box).detach().clone()
        trained = [n for t, n in program.parameters.items() if program.tiles[t].active]
        self.trained = list(dict.fromkeys(trained))
        self.optimizer = optimizer([self.state[n] for n in self.trained]) if optimizer and self.trained else None
        self.gradients: dict[str, Tensor] = {}
        self.values: dict[Key, Tensor] = {}
        self.grads: dict[Key, Tensor] = {}
        self.tape: dict[Key, tuple[list[int], list[Tensor], list[tuple[int, Any]]]] = {}
        self.actions: dict[str, Callable[[Instruction, Step], Running | None]] = {
            "forward": self.forward, "backward": self.backward, "move": self.move, "move_back": self.move_back,
            "combine": self.combine, "optimize": self.optimize, "update_buffers": self.finish_forward,
            "loss": self.seed_loss,
        }  # fmt: skip

    def add(self, program: Program) -> int:
        """Take another Program, of another batch for instance, which has the same tiles at rest; gives its variant."""
        code = {number: self.library.code(segment) for number, segment in program.segments.items()}
        self.programs.append((program, code, Combining(program, self.transport)))
        return len(self.programs) - 1

    def run(self, step: Step) -> Running:
        """One step: all instructions in order, or those of one part."""
        self.program, self.code, self.combining = self.programs[step.variant]
        self.combining.begin()
        if step.part != "backward":
            self.values, self.grads, self.tape, self.gradients = {}, {}, {}, {}
            for tile, name in self.program.parameters.items():
                self.values[tile, None] = self.state[name]
        for instruction in part_of(self.program, step.part):
            start_s = perf_counter()
            waiting = self.actions[instruction.kind](instruction, step)
            if waiting is not None:
                yield from waiting
            for tile in instruction.free:
                self.values.pop((tile, instruction.micro_batch), None)
            if self.recorder is not None:
                self.recorder(instruction, start_s, perf_counter())

    def value(self, tile: int, micro_batch: int | None, step: Step) -> Tensor:
        """A value in flight, a stored one, or a cut of the model's inputs."""
        key = self.program.key(tile, micro_batch)
        if key in self.values:
            return self.values[key]
        if tile in self.program.stored:
            return self.state[self.program.stored[tile]]
        name = self.program.feeds[tile]
        whole, dim = step.inputs[name], step.batch_dims.get(name, -1)
        if dim >= 0 and whole.dim() and micro_batch is not None:
            low, high = self.program.batches[micro_batch]
            whole = whole.narrow(dim, low, high - low)
        self.values[key] = take(whole, self.program.tiles[tile].box)
        return self.values[key]

    def forward(self, instruction: Instruction, step: Step) -> None:
        segment, tiles, m = self.program.segments[instruction.id], self.program.tiles, instruction.micro_batch
        inputs = [self.value(tile, m, step) for tile in segment.inputs]
        set_clock(RandomClock(step.seed, step.number, m or 0))
        active = [i for i, t in enumerate(segment.inputs) if tiles[t].active]
        if not self.program.training or not active:
            with torch.no_grad():
                outputs = self.code[instruction.id](*inputs)
        else:
            with torch.enable_grad():
                for i in active:
                    inputs[i] = inputs[i].detach().requires_grad_()
                outputs = self.code[instruction.id](*inputs)
            edges = [
                (t, get_gradient_edge(o))
                for t, o in zip(segment.outputs, outputs, strict=True)
                if tiles[t].active and o.requires_grad
            ]
            leaves = [inputs[i] for i in active]
            self.tape[instruction.id, m] = ([segment.inputs[i] for i in active], leaves, edges)
        for tile, output in zip(segment.outputs, outputs, strict=True):
            self.values[tile, m] = output.detach()

    def backward(self, instruction: Instruction, step: Step) -> None:
        tiles, leaves, edges = self.tape.pop((instruction.id, instruction.micro_batch))
        wanted = [
            (edge, g)
            for t, edge in edges
            if (g := self.grads.pop(self.program.key(t, instruction.micro_batch), None)) is not None
        ]
        if not wanted:
            return
        last = self.combining.due(instruction.id, instruction.micro_batch)
        for tile, leaf in zip(tiles, leaves, strict=True):
            if tile in last:
                leaf.register_hook(partial(self.complete, last[tile], self.program.key(tile, instruction.micro_batch)))
        grads = torch.autograd.grad([e for e, _ in wanted], leaves, [g for _, g in wanted], allow_unused=True)
        for tile, grad in zip(tiles, grads, strict=True):
            if grad is not None:
                self.accumulate(self.program.key(tile, instruction.micro_batch), grad)

    def complete(self, name: str, key: Key, grad: Tensor) -> None:
        """The last part of a parameter's gradient is there."""
        known = self.grads.get(key)
        self.combining.put(name, grad if known is None else known + grad)

    def accumulate(self, key: Key, grad: Tensor) -> None:
        """Add a gradient, out of place: a tensor that was sent or kept must not change."""
        known = self.grads.get(key)
        self.grads[key] = grad if known is None else known + grad

    def move(self, instruction: Instruction, step: Step) -> Running:
        transfer = self.program.transfers[instruction.id]
        m = instruction.micro_batch
        source = None if transfer.source is None else self.value(transfer.source, m, step)
        shape = self._tile(transfer.target)
        result = yield from self.exchange(
            transfer, source, shape, transfer.sends, transfer.receives, ("f", transfer.number, m), transfer.add
        )
        if transfer.target is not None and result is not None:
            self.values[self.program.key(transfer.target, m)] = result

    def move_back(self, instruction: Instruction, step: Step) -> Running:
        transfer = self.program.transfers[instruction.id]
        m, grad = instruction.micro_batch, None
        if transfer.target is not None:
            tile = self.program.tiles[transfer.target]
            grad = self.grads.pop(self.program.key(transfer.target, m), None)
            if grad is None:
                grad = empty(tile.local_shape, tile.dtype).zero_()
        shape = self._tile(transfer.source)
        result = yield from self.exchange(
            transfer, grad, shape, transfer.receives, transfer.sends, ("b", transfer.number, m), True
        )
        if transfer.source is not None and result is not None:
            self.accumulate(self.program.key(transfer.source, m), result)

    def _tile(self, tile: int | None) -> Tile | None:
        return None if tile is None else self.program.tiles[tile]

    def exchange(
        self, transfer: Transfer, source: Tensor | None, target: Tile | None, sends: tuple[Piece, ...],
        receives: tuple[Piece, ...], tag: tuple[Any, ...], add: bool,
    ) -> Generator[None, None, Tensor | None]:  # fmt: skip
        """Send pieces of ``source``, assemble pieces into a tensor like ``target``.  Both directions use it."""
        if transfer.kind == "all_reduce":
            assert source is not None
            return (yield from self.transport.all_reduce(source, transfer.group, tag))
        own: Tensor | None = None
        for piece in sends:
            assert source is not None
            part = take(source, piece.where)
            if piece.peer == self.program.rank:
                own = part
            else:
                self.transport.send(piece.peer, tag, part)
        if target is None:
            return None
        dtype = target.dtype
        result: Tensor | None = None
        for piece in receives:
            like = empty(shape_of(piece.where), dtype)
            if piece.peer == self.program.rank:
                assert own is not None
                part = own
            else:
                part = yield from self.transport.get(piece.peer, tag, like)
            if len(receives) == 1 and part.shape == target.local_shape:
                return part
            if result is None:
                result = empty(target.local_shape, dtype)
                if add or not _fills(receives, target):
                    result.zero_()
            put(result, piece.where, part, add=add)
        return empty(target.local_shape, dtype).zero_() if result is None else result

    def finish_forward(self, instruction: Instruction, step: Step) -> None:
        """End of a micro-batch's forward pass: new buffers, loss and results are taken."""
        m = instruction.micro_batch
        for tile, name in self.program.updates.items():
            if (tile, m) in self.values:
                self.state[name] = self.values.pop((tile, m))
        for tile in self.program.losses:
            if (tile, m) in self.values and m is not None:
                step.losses[m] = self.values[tile, m]
        for tile in self.program.results:
            if (tile, m) in self.values:
                step.results[tile, m] = self.values[tile, m]

    def seed_loss(self, instruction: Instruction, step: Step) -> None:
        """Where gradients begin: the loss with its weight, nowhere if that is zero (a mean over nothing is NaN, and so
        are its gradients), or the results with the gradients that are given."""
        m = instruction.micro_batch
        for tile in self.program.seeds:
            given = step.gradients.get(self.program.results.get(tile, ""))
            if given is not None:
                self.accumulate((tile, m), take(given, self.program.tiles[tile].box))
            elif (tile, m) in self.values and tile in self.program.losses and m is not None and step.weights[m]:
                self.accumulate((tile, m), torch.full_like(self.values[tile, m], step.weights[m]))

    def collect(self) -> None:
        """Gradients by parameter, summed over the tiles of all variants."""
        self.gradients = {}
        for tile, name in self.program.parameters.items():
            grad = self.grads.pop((tile, None), None)
            if grad is not None:
                known = self.gradients.get(name)
                self.gradients[name] = grad if known is None else known + grad

    def combine(self, instruction: Instruction, step: Step) -> Running:
        """Sum a bucket of gradients over a group of engines."""
        if instruction.id == 0:
            self.collect()
        combine = self.program.combines[instruction.id]
        if len(combine.group) < 2:
            return
        if instruction.id in self.combining.queues:
            self.gradients |= self.combining.finish(instruction.id, self.gradient)
            return
        given = [self.gradient(name) for name in combine.parameters]
        sums = yield from self.transport.combine(given, combine.group, ("c", instruction.id))
        self.gradients |= zip(combine.parameters, sums, strict=True)

    def gradient(self, name: str) -> Tensor:
        known = self.gradients.get(name)
        return torch.zeros_like(self.state[name]) if known is None else known

    def optimize(self, instruction: Instruction, step: Step) -> None:
        """One optimizer step on the tiles that rest here."""
        if not self.program.combines:
            self.collect()
        if self.optimizer is None:
            return
        for name in self.trained:
            self.state[name].grad = self.gradient(name)
        self.optimizer.step()
        for name in self.trained:
            self.state[name].grad = None


def part_of(program: Program, part: str) -> tuple[Instruction, ...]:
    """The instructions before the first backward pass, those from there on, or all."""
    steps = program.instructions
    border = next((number for number, step in enumerate(steps) if step.kind == "loss"), len(steps))
    return {"all": steps, "forward": steps[:border], "backward": steps[border:]}[part]


def _fills(receives: tuple[Piece, ...], target: Tile) -> bool:
    return sum(volume(piece.where) for piece in receives) == volume(target.box)
