"""When a tile may go: with each forward instruction, the tiles that it reads for the last time."""

from collections.abc import Mapping, Sequence

from trine.program.program import Instruction, Segment, Tile, Transfer


def with_frees(
    instructions: Sequence[Instruction], segments: Mapping[int, Segment], transfers: Mapping[int, Transfer],
    tiles: Mapping[int, Tile], kept: set[int],
) -> tuple[Instruction, ...]:  # fmt: skip
    """Attach to each forward instruction the tiles that are read for the last time by it."""
    last: dict[tuple[int, int | None], int] = {}
    for number, step in enumerate(instructions):
        reads: Sequence[int] = ()
        if step.kind == "forward":
            reads = (*segments[step.id].inputs, *segments[step.id].outputs)
        elif step.kind == "move":
            transfer = transfers[step.id]
            reads = tuple(t for t in (transfer.source, transfer.target) if t is not None)
        for tile in reads:
            if not tiles[tile].per_step and tile not in kept:
                last[tile, step.micro_batch] = number
    frees: dict[int, list[int]] = {}
    for (tile, _), number in last.items():
        frees.setdefault(number, []).append(tile)
    return tuple(
        Instruction(s.kind, s.id, s.micro_batch, tuple(sorted(frees.get(n, ())))) for n, s in enumerate(instructions)
    )
