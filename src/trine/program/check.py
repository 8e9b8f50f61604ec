"""Legality of the Programs of a plan: what must hold before anybody runs or simulates them.

``faults`` lists what is broken, each with the place; ``check`` raises with the instructions around the first.
The dry run follows the runtime's rules: a send is never waited for, a receive is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trine.graph.part import Box, shape_of, volume
from trine.program.program import Instruction, Program, Transfer, goes_back

Message = tuple[int, int, tuple[object, ...]]  # source, destination, tag
Content = tuple[tuple[int, ...], str]  # shape, data type


@dataclass(frozen=True)
class Fault:
    """One broken rule: the engine's rank, the number of its instruction (None: before any), what is wrong."""

    rank: int
    at: int | None
    what: str


def check(programs: Sequence[Program]) -> None:
    """Raise ValueError with the place of the first fault and how many there are."""
    found = faults(programs)
    if found:
        first = found[0]
        lines = programs[first.rank].grid().splitlines()[1:] if first.rank < len(programs) else []
        at = first.at or 0
        numbers = range(max(at - 3, 0), min(at + 4, len(lines)))
        near = [("-> " if i == first.at else "   ") + lines[i].strip() for i in numbers]
        more = f" (and {len(found) - 1} faults more)" if len(found) > 1 else ""
        raise ValueError("\n".join([f"engine {first.rank}: {first.what}{more}", *near]))


def faults(programs: Sequence[Program]) -> list[Fault]:
    """Every broken rule; the dry run is made only if the rest is in order."""
    found = [Fault(i, None, f"is number {p.rank}") for i, p in enumerate(programs) if p.rank != i]
    for program in programs:
        found += tile_faults(program)
        found += transfer_faults(program)
    return found or list(dry_run(programs))


def transfer_faults(program: Program) -> Iterator[Fault]:
    """Pieces lie in their tiles, what arrives fills the tile it makes, and each transfer is moved at most once for a
    micro-batch."""
    for number, transfer in program.transfers.items():
        ends = ((transfer.source, transfer.sends, "sends"), (transfer.target, transfer.receives, "receives"))
        for tile, pieces, word in ends:
            if tile is None:
                if pieces:
                    yield Fault(program.rank, None, f"transfer {number} {word} without a tile")
                continue
            lengths = program.tiles[tile].local_shape
            for piece in pieces:
                if len(piece.where) != len(lengths) or any(
                    part and part[-1][1] > n for part, n in zip(piece.where, lengths, strict=True)
                ):
                    yield Fault(program.rank, None, f"transfer {number} {word} outside of tile {tile}")
        if transfer.target is not None and not transfer.add and transfer.kind != "all_reduce":
            filled = sum(volume(piece.where) for piece in transfer.receives)
            if filled != volume(program.tiles[transfer.target].box):
                yield Fault(program.rank, None, f"transfer {number} fills {filled} elements of tile {transfer.target}")
    seen = set[tuple[str, int, int | None]]()
    for at, step in enumerate(program.instructions):
        key = (step.kind, step.id, step.micro_batch)
        if step.kind in ("move", "move_back", "forward", "backward") and key in seen:
            yield Fault(program.rank, at, "is done twice")
        seen.add(key)


def tile_faults(program: Program) -> Iterator[Fault]:
    """A tile is made before it is read and freed after its last reader; a segment that went forth goes back once."""
    kept = {*program.losses, *program.results, *program.updates}
    always = {*program.parameters, *program.stored, *program.feeds}
    alive = set[tuple[int, int | None]]()
    freed = set[tuple[int, int | None]]()
    forth = set[tuple[int, int | None]]()  # went forth, and must come back
    for at, step in enumerate(program.instructions):
        reads, makes = _touches(program, step)
        for tile in reads:
            key = program.key(tile, step.micro_batch)
            if key in freed:
                yield Fault(program.rank, at, f"reads tile {tile} after it was freed")
            elif key not in alive and tile not in always:
                yield Fault(program.rank, at, f"reads tile {tile}, which nobody made")
            alive.add(key)
        alive.update(program.key(tile, step.micro_batch) for tile in makes)
        if step.kind == "forward" and program.training and goes_back(program.segments[step.id], program.tiles):
            forth.add((step.id, step.micro_batch))
        elif step.kind == "backward" and (step.id, step.micro_batch) not in forth:
            yield Fault(program.rank, at, f"goes back through segment {step.id}, which did not go forth")
        elif step.kind == "backward":
            forth.remove((step.id, step.micro_batch))
        for tile in step.free:
            key = program.key(tile, step.micro_batch)
            if key in freed or key not in alive:
                yield Fault(program.rank, at, f"frees tile {tile}, which is not there")
            if tile in kept or program.tiles[tile].per_step:
                yield Fault(program.rank, at, f"frees tile {tile}, which is kept")
            freed.add(key)
    made = {tile for tile, _ in alive} | always
    for tile in sorted(kept - made):
        yield Fault(program.rank, None, f"never makes tile {tile}, which leaves the engine")
    for segment, m in sorted(forth, key=str):
        yield Fault(program.rank, None, f"never goes back through segment {segment} for micro-batch {m}")
    for tile, m in sorted(alive - freed, key=str):
        if tile not in kept and not program.tiles[tile].per_step:
            yield Fault(program.rank, None, f"never frees tile {tile} of micro-batch {m}")


def _touches(program: Program, step: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tiles whose value an instruction reads, and those that it makes."""
    if step.kind == "forward":
        segment = program.segments[step.id]
        return segment.inputs, segment.outputs
    if step.kind == "move":
        transfer = program.transfers[step.id]
        source = () if transfer.source is None else (transfer.source,)
        return source, () if transfer.target is None else (transfer.target,)
    return (), ()


def dry_run(programs: Sequence[Program]) -> Iterator[Fault]:
    """Run all instructions without tensors: every receive finds its send, of its shape and type, nobody waits for
    ever, and nothing is left over."""
    mail = dict[Message, Content]()  # sent and not yet received
    at = [0] * len(programs)
    sent = [False] * len(programs)
    moving = True
    while moving:
        moving = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program.instructions):
                gives, takes = _messages(program, program.instructions[at[rank]])
                if not sent[rank]:
                    for message, content in gives.items():
                        if message in mail:
                            yield Fault(rank, at[rank], f"sends {message[2]} to engine {message[1]} twice")
                        mail[message] = content
                    sent[rank] = moving = True
                if any(message not in mail for message in takes):
                    break
                for message, content in takes.items():
                    got = mail.pop(message)
                    if got != content:
                        yield Fault(rank, at[rank], f"expects {content} from engine {message[0]}, which sends {got}")
                at[rank] += 1
                sent[rank], moving = False, True
    for rank, program in enumerate(programs):
        if at[rank] < len(program.instructions):
            _, takes = _messages(program, program.instructions[at[rank]])
            lacking = sorted(message[0] for message in takes if message not in mail)
            yield Fault(rank, at[rank], f"waits for engines {lacking} for ever")
    if all(n == len(program.instructions) for n, program in zip(at, programs, strict=True)):
        for source, peer, tag in mail:
            yield Fault(source, None, f"sends {tag} to engine {peer}, which never receives it")


def _messages(program: Program, step: Instruction) -> tuple[dict[Message, Content], dict[Message, Content]]:
    """What an instruction sends, and what it waits for."""
    me = program.rank
    if step.kind == "combine":
        combine = program.combines[step.id]
        size = sum(
            volume(program.tiles[tile].box)
            for name in combine.parameters
            for tile in [next(t for t, n in program.parameters.items() if n == name)]
        )
        return _to_all(me, combine.group, ("combine", step.id), ((size,), ",".join(combine.parameters)))
    if step.kind not in ("move", "move_back"):
        return {}, {}
    transfer = program.transfers[step.id]
    tag = (step.kind, transfer.number, step.micro_batch)
    tiles = [program.tiles[t] for t in (transfer.source, transfer.target) if t is not None]
    dtype = tiles[0].dtype
    if transfer.kind == "all_reduce":
        return _to_all(me, transfer.group, tag, (tiles[0].local_shape, dtype))
    gives, takes = _pieces(transfer, step.kind == "move_back")
    return (
        {(me, peer, tag): (shape_of(where), dtype) for peer, where in gives.items() if peer != me},
        {(peer, me, tag): (shape_of(where), dtype) for peer, where in takes.items() if peer != me},
    )


def _pieces(transfer: Transfer, backwards: bool) -> tuple[Mapping[int, Box], Mapping[int, Box]]:
    sends = {piece.peer: piece.where for piece in transfer.sends}
    receives = {piece.peer: piece.where for piece in transfer.receives}
    return (receives, sends) if backwards else (sends, receives)


def _to_all(
    me: int, group: Sequence[int], tag: tuple[object, ...], content: Content
) -> tuple[dict[Message, Content], dict[Message, Content]]:
    """An all-reduce: everybody of the group gives to everybody."""
    peers = [peer for peer in group if peer != me]
    return {(me, peer, tag): content for peer in peers}, {(peer, me, tag): content for peer in peers}
