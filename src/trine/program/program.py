"""Program: what one engine does, as data.  The runtime, the simulator and the lockstep verifier read the same one.

A *tile* is a value that the engine holds: a packed box of a tensor.  A *segment* is a run of operators without
communication.  A *transfer* moves tiles between engines; its transpose moves gradients back.  Instructions are in
order of execution; a micro-batch number is ``None`` for what happens once per step.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from trine.graph.graph import ITEM_BYTES, Operator
from trine.graph.part import Box, shape_of, volume

Kind = Literal[
    "move", "forward", "backward", "move_back", "combine", "optimize", "update_buffers", "loss",
]  # fmt: skip
TransferKind = Literal["all_reduce", "reduce_scatter", "all_gather", "exchange", "all_to_all", "hand_over"]


class Tile(msgspec.Struct, frozen=True):
    """A value of this engine.  ``active``: a gradient flows through it.  ``per_step``: one for all micro-batches."""

    tensor: str
    shape: tuple[int, ...]
    box: Box
    dtype: str
    active: bool
    per_step: bool = False

    @property
    def local_shape(self) -> tuple[int, ...]:
        return shape_of(self.box)

    @property
    def num_bytes(self) -> int:
        return volume(self.box) * ITEM_BYTES[self.dtype]


class Piece(msgspec.Struct, frozen=True):
    """What goes to or comes from a peer: positions inside this engine's tile, a part per dimension."""

    peer: int
    where: Box


class Transfer(msgspec.Struct, frozen=True):
    """Communication between tiles: ``number`` is the same on all engines; ``sends`` lie in the tile ``source``,
    ``receives`` fill the tile ``target``.

    ``add``: what arrives is summed (the source is partial).  ``group``: ranks that take part, in order.  The transpose
    has the same pieces with the roles exchanged, and always adds.
    """

    number: int
    kind: TransferKind
    source: int | None
    target: int | None
    group: tuple[int, ...]
    sends: tuple[Piece, ...]
    receives: tuple[Piece, ...]
    add: bool
    active: bool


class Segment(msgspec.Struct, frozen=True):
    """Operators over tiles named ``"t12"``; inputs and outputs are tile numbers."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


def goes_back(segment: Segment, tiles: Mapping[int, Tile]) -> bool:
    """Whether a gradient flows through a segment."""
    return all(any(tiles[tile].active for tile in ends) for ends in (segment.inputs, segment.outputs))


class Combine(msgspec.Struct, frozen=True):
    """Sum the gradients of these parameters over the ranks of a group."""

    group: tuple[int, ...]
    parameters: tuple[str, ...]


class Instruction(msgspec.Struct, frozen=True):
    """One thing to do.  ``free``: tiles whose value is not needed after it."""

    kind: Kind
    id: int = 0
    micro_batch: int | None = None
    free: tuple[int, ...] = ()


class Program(msgspec.Struct, frozen=True):
    """Everything that one engine needs to know.

    parameters: tile number → parameter; a parameter *rests* in that tile between steps.
    feeds: tile number → input of the model (whole batch of the micro-batch is cut by the runtime).
    stored: tile number → buffer or constant.
    updates: tile that holds the new value → buffer; losses: tiles of the loss, where this stage makes it;
    results: tile → number of the output that it is a part of.
    batches: rows ``(low, high)`` of the batch that each micro-batch takes.
    seeds: tiles of losses or results whose gradient this engine begins with: what is whole, one engine of a group does.
    """

    rank: int
    stage: int
    coords: tuple[int, ...]
    num_engines: int
    training: bool
    tiles: dict[int, Tile]
    segments: dict[int, Segment]
    transfers: dict[int, Transfer]
    combines: dict[int, Combine]
    parameters: dict[int, str]
    feeds: dict[int, str]
    stored: dict[int, str]
    updates: dict[int, str]
    losses: tuple[int, ...]
    results: dict[int, str]
    batches: tuple[tuple[int, int], ...]
    instructions: tuple[Instruction, ...]
    seeds: tuple[int, ...] = ()

    def key(self, tile: int, micro_batch: int | None) -> tuple[int, int | None]:
        """What names a value in flight: its tile and its micro-batch, None for what is there once a step."""
        return (tile, None if self.tiles[tile].per_step else micro_batch)

    def grid(self) -> str:
        """The instructions, one a line, as a person reads them."""
        lines = [f"engine {self.rank} of {self.num_engines} (stage {self.stage}, coordinates {self.coords})"]
        for step in self.instructions:
            batch = "" if step.micro_batch is None else f" micro-batch {step.micro_batch}"
            lines.append(f"  {step.kind} {step.id}{batch}")
        return "\n".join(lines)
