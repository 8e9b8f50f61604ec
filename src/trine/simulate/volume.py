"""Bytes that each engine sends in one step, from the boxes of its transfers.

Point-to-point messages count their payload; an all-reduce counts what a ring moves, 2(n - 1)/n of the tensor, rounded
down, as ``Transport.all_reduce`` does.  gloo moves as much: bench/lab/loopback.py holds this against the wire, where
headers and acknowledgements add less than 1 % to steps over 10 MB.
"""

from collections.abc import Iterable

from trine.cost.collectives import ring_bytes
from trine.graph.graph import ITEM_BYTES
from trine.graph.part import volume
from trine.program.program import Piece, Program, Transfer
from trine.simulate.simulate import combined_bytes


def bytes_sent(program: Program) -> int:
    """Bytes that leave this engine in one step."""
    total = 0
    for instruction in program.instructions:
        if instruction.kind in ("move", "move_back"):
            transfer = program.transfers[instruction.id]
            total += transfer_bytes(program, transfer, back=instruction.kind == "move_back")
        elif instruction.kind == "combine":
            combine = program.combines[instruction.id]
            total += ring_bytes(len(combine.group), combined_bytes(program, combine.parameters))
    return total


def transfer_bytes(program: Program, transfer: Transfer, *, back: bool) -> int:
    """Bytes that leave the engine in a transfer, or in its transpose."""
    tile = transfer.target if back else transfer.source
    if tile is None:
        return 0
    if transfer.kind == "all_reduce":
        return ring_bytes(len(transfer.group), program.tiles[tile].num_bytes)
    pieces: Iterable[Piece] = transfer.receives if back else transfer.sends
    elements = sum(volume(piece.where) for piece in pieces if piece.peer != program.rank)
    return elements * ITEM_BYTES[program.tiles[tile].dtype]
