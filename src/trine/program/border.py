"""Border first: what neighbours wait for is made and sent before the rest of a tile, and is under way meanwhile.

A segment whose result is exchanged gets a small one before it, which makes only what others read.  Its transfer becomes
two under one number: one that sends from the border, and one that receives; so the messages are the same, and no other
engine need know.  Backwards, gradients of the border arrive while the segment goes back, and only the small one waits
for them.  A border is made twice, which is less work than to join it with the rest; so it must be a small share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from trine.graph.part import Box, Part, at_positions, contains, union, volume, within
from trine.program.flow import Item, Slice, Work
from trine.program.program import Piece, Tile, Transfer

LARGEST = 1 / 6  # share of a tile that may be made twice for one neighbour

Wanted = dict[int, tuple[int, Part]]  # slot → dimension, the part of it that is wanted


@dataclass(frozen=True)
class Border:
    """What a small segment is made of: its items, its tiles and the tile that it makes; and the transfers from it."""

    items: tuple[Item, ...]
    tiles: dict[int, Tile]
    made: int
    sends: tuple[Transfer, ...]


def border(
    items: Sequence[Item], tiles: Mapping[int, Tile], made: int, cut: tuple[int, int], transfers: Sequence[Transfer],
    peer: int, first_id: int,
) -> Border | None:  # fmt: skip
    """What a peer reads of the tile ``made``, which ``items`` make and ``transfers`` exchange along ``cut`` (mesh axis,
    dimension).  None where that is nothing, or not a small share, or where an operator cannot make it alone.
    """
    axis, dim = cut
    have = tiles[made].box
    given = [(t, piece.where) for t in transfers for piece in t.sends if piece.peer == peer]
    parts = [at_positions(where[dim], have[dim]) for _, where in given]
    edge = union(*parts)
    if not 0 < volume(_narrowed(have, dim, edge)) <= LARGEST * volume(have):
        return None
    asked = wanted(items, made, axis, (dim, edge))
    if asked is None or any(not contains(tiles[slot].box[d], part) for slot, (d, part) in asked.items()):
        return None
    new = {slot: first_id + number for number, slot in enumerate(asked)}
    fresh = {new[slot]: _narrow(tiles[slot], *where) for slot, where in asked.items()}
    inside = {slot for item in items for slot in _outputs(item)}
    taken = [Slice(slot, new[slot]) for slot in asked if slot not in inside]
    cone = [_over(item, new) for item in items if not asked.keys().isdisjoint(_outputs(item))]
    sends = (
        replace(
            t,
            source=new[made],
            target=None,
            sends=(Piece(peer, _narrowed(where, dim, within(part, edge))),),
            receives=(),
        )
        for (t, where), part in zip(given, parts, strict=True)
    )
    return Border((*taken, *cone), fresh, new[made], tuple(sends))


def wanted(items: Sequence[Item], made: int, axis: int, where: tuple[int, Part]) -> Wanted | None:
    """What of each slot is needed for a part of one that the items make; None where an operator on the way does not
    follow the axis, or is not among the items."""
    inside = {slot for item in items for slot in _outputs(item)}
    if made not in inside:
        return None
    result: Wanted = {made: where}

    def want(slot: int, dim: int, part: Part) -> bool:
        known = result.setdefault(slot, (dim, part))
        result[slot] = (dim, union(known[1], part))
        return known[0] == dim

    for item in reversed(items):
        asked = [result[slot] for slot in _outputs(item) if slot in result]
        if not asked:
            continue
        if isinstance(item, Slice):
            if not want(item.source, *asked[0]):
                return None
            continue
        rule, part = item.placed.rules[axis], union(*(part for _, part in asked))
        dims = dict(rule.outputs) if rule is not None else {}
        if rule is None or rule.reduce or not rule.accepts(part):
            return None
        for number, slot in enumerate(item.outputs):
            if slot is not None and (number not in dims or not want(slot, dims[number], part)):
                return None
        for position, slot in enumerate(item.inputs):
            cut = rule.cut_of(position)
            if cut is None and slot in inside:
                return None
            if cut is not None and not want(slot, cut.dim, cut.relation.needs(part)):
                return None
    return result


def _outputs(item: Item) -> tuple[int, ...]:
    return (item.target,) if isinstance(item, Slice) else tuple(slot for slot in item.outputs if slot is not None)


def _over(item: Item, new: Mapping[int, int]) -> Item:
    """An item over the border's tiles; what is read whole stays."""
    if isinstance(item, Slice):
        return Slice(new[item.source], new[item.target])
    outputs = tuple(None if slot is None else new[slot] for slot in item.outputs)
    return Work(item.placed, tuple(new.get(slot, slot) for slot in item.inputs), outputs)


def _narrow(tile: Tile, dim: int, part: Part) -> Tile:
    return replace(tile, box=_narrowed(tile.box, dim, part))


def _narrowed(box: Box, dim: int, part: Part) -> Box:
    return (*box[:dim], part, *box[dim + 1 :])
