"""Forms: the Programs for one capture of a module, as one differentiable function of its tensors."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from trine.capture.export import Captured
from trine.lower.tiles import put, take
from trine.plan.plan import Plan
from trine.program.compile import Compiled
from trine.program.program import Program, Tile

RANDOM = ("trine.dropout", "trine.bernoulli")
Parts = Mapping[str, list[tuple[Tile, Tensor]]]  # tensor → its tiles


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

    def blank(self) -> dict[str, Tensor]:
        """Every tensor that an engine has at rest or in flight, without data."""
        used = {tile.tensor: tile for p in self.programs for tile in p.tiles.values()}
        return {n: torch.empty(t.shape, dtype=getattr(torch, t.dtype), device="meta") for n, t in used.items()}


def at_rest(program: Program, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What one engine has of the parameters and buffers."""
    names = {**program.parameters, **program.stored}
    return {name: take(state[name], program.tiles[tile].box) for tile, name in names.items()}


def whole(parts: Sequence[tuple[Tile, Tensor]], *, add: bool = False) -> Tensor:
    """A new tensor from its tiles; they are added, or agree where they overlap."""
    tile, value = parts[0]
    result = torch.zeros(tile.shape, dtype=value.dtype)
    for tile, value in parts:
        put(result, tile.box, value, add=add)
    return result
