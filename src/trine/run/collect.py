"""What engines report after a step, and the whole tensors that their tiles make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from trine.graph.part import Box, full, is_grid
from trine.lower.tiles import put
from trine.program.program import Tile
from trine.run.engine import Engine, Step

K = TypeVar("K")
Cut = tuple[Box, tuple[int, ...], Tensor]  # box, whole shape, tile


@dataclass
class Report:
    """One engine's tiles after a step; keys are names (results: the output's number and the micro-batch)."""

    losses: dict[int, Tensor] = field(default_factory=dict)
    results: dict[tuple[str, int], Cut] = field(default_factory=dict)
    gradients: dict[str, Cut] = field(default_factory=dict)
    state: dict[str, Cut] = field(default_factory=dict)
    bytes_sent: int = 0


@dataclass
class Whole:
    """The same, put together.  Losses are those of the micro-batches, unweighted."""

    losses: dict[int, Tensor]
    results: dict[tuple[str, int], Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]
    bytes_sent: list[int]

    def loss(self, weights: Sequence[float]) -> Tensor | None:
        """Loss of the whole batch; a micro-batch that has no weight has no say, whatever its loss is."""
        if not self.losses:
            return None
        return torch.stack([self.losses[m] * w for m, w in enumerate(weights) if w]).sum()


def report(engine: Engine, step: Step, *, tensors: bool = True) -> Report:
    """What an engine holds after a step; without ``tensors`` only losses and counts."""
    result = Report(dict(step.losses), bytes_sent=engine.transport.bytes_sent)
    if not tensors:
        return result
    program = engine.program

    def cut(tile: Tile, value: Tensor) -> Cut:
        return tile.box, tile.shape, value.detach()

    for (tile, m), value in step.results.items():
        if m is not None:
            result.results[program.results[tile], m] = cut(program.tiles[tile], value)
    told = {n for c in program.combines.values() if c.group[0] != program.rank for n in c.parameters}
    for tile, name in {**program.parameters, **program.stored}.items():
        if name in told:  # the first engine of its group, which holds the same bits, reports it
            continue
        result.state[name] = cut(program.tiles[tile], engine.state[name])
        if name in engine.gradients:
            result.gradients[name] = cut(program.tiles[tile], engine.gradients[name])
    return result


def together(reports: Sequence[Report]) -> Whole:
    """The whole of all tiles; every engine of a replica group holds the same bits, one of them is taken."""
    losses = {m: value for r in reports for m, value in r.losses.items()}
    return Whole(
        losses, _join([r.results for r in reports]), _join([r.gradients for r in reports]),
        _join([r.state for r in reports], copy=True), [r.bytes_sent for r in reports],
    )  # fmt: skip


def _join(parts: Sequence[Mapping[K, Cut]], *, copy: bool = False) -> dict[K, Tensor]:
    """Whole tensors of tiles; with ``copy`` none of them is a tile, which may change later."""
    result: dict[K, Tensor] = {}
    complete = set[K]()
    boxes: dict[K, set[Box]] = {}
    for part in parts:
        for key, (where, _, _) in part.items():
            boxes.setdefault(key, set()).add(where)
    for part in reversed(parts):
        for key, (where, shape, tile) in part.items():
            if key in complete:
                continue
            if where == full(shape):
                result[key] = tile.clone() if copy else tile
                complete.add(key)
                continue
            if key not in result:
                fill = float("nan") if tile.is_floating_point() else 0
                fresh = torch.empty(shape, dtype=tile.dtype)  # a gap, if there is one, must be seen
                result[key] = fresh if is_grid(boxes[key], shape) else fresh.fill_(fill)
            put(result[key], where, tile, add=False)
    return result
