"""What the transport of a process must know in advance, read from the Programs.

On gloo a message moves only when its receive is posted, and a send can be awaited but not asked whether it is done.
So a *route* says which receives come, in order, that they can be posted early; and which sends are known to be done
when a message arrives, because the peer sent it after it had received them, that their tensors can be dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trine.graph.part import shape_of, volume
from trine.program.program import Piece, Program
from trine.run.transport import Tag

KINDS = ("f", "b", "c")  # the first word of a tag: forward, backward, combine


@dataclass(frozen=True)
class Expected:
    """A message that will come."""

    peer: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Exchange:
    """What one instruction sends (to which peers) and receives."""

    tag: Tag
    sends: tuple[int, ...]
    receives: tuple[Expected, ...]


@dataclass(frozen=True)
class Route:
    """One engine's exchanges in order.

    done: (peer, tag of a message from it) → tags of the sends to it that are done when the message is here.
    """

    exchanges: tuple[Exchange, ...]
    done: Mapping[tuple[int, Tag], tuple[Tag, ...]]
    num_micro_batches: int

    def span(self, part: str) -> tuple[int, int]:
        """Where the exchanges of a whole step (all), or of its forward or backward part, begin and end."""
        end = len(self.exchanges)
        border = next((n for n, exchange in enumerate(self.exchanges) if exchange.tag[0] == "b"), end)
        return {"all": (0, end), "forward": (0, border), "backward": (border, end)}[part]

    def number(self, tag: Tag) -> int:
        """The tag as gloo takes it: equal on both sides, different for all messages of a step between two engines."""
        kind, number, *rest = tag
        assert isinstance(number, int)
        assert isinstance(kind, str)
        place = next((m + 1 for m in rest if isinstance(m, int)), 0)
        return (number * (self.num_micro_batches + 1) + place) * len(KINDS) + KINDS.index(kind)


def exchanges(program: Program) -> tuple[Exchange, ...]:
    """The exchanges of a Program in order of execution; collectives are not among them."""
    result = []
    for step in program.instructions:
        if step.kind not in ("move", "move_back") or program.transfers[step.id].kind == "all_reduce":
            continue
        transfer = program.transfers[step.id]
        ways = (transfer.sends, transfer.receives, transfer.target)
        if step.kind == "move_back":
            ways = (transfer.receives, transfer.sends, transfer.source)
        sends, receives, target = ways
        dtype = "" if target is None else program.tiles[target].dtype
        tag: Tag = ("f" if step.kind == "move" else "b", transfer.number, step.micro_batch)
        came = tuple(Expected(p.peer, shape_of(p.where), dtype) for p in _foreign(receives, program.rank))
        result.append(Exchange(tag, tuple(p.peer for p in _foreign(sends, program.rank)), came))
    return tuple(result)


def _foreign(pieces: Sequence[Piece], rank: int) -> list[Piece]:
    return [p for p in pieces if p.peer != rank and volume(p.where)]


def routes(of_rank: Mapping[int, tuple[Exchange, ...]], num_micro_batches: int) -> dict[int, Route]:
    """The route of every engine, from the exchanges of all."""
    done: dict[int, dict[tuple[int, Tag], tuple[Tag, ...]]] = {rank: {} for rank in of_rank}
    for rank, own in of_rank.items():
        received: dict[int, list[Tag]] = {}
        for exchange in own:
            for peer in exchange.sends:
                done[peer][rank, exchange.tag] = tuple(received.pop(peer, ()))
            for message in exchange.receives:
                received.setdefault(message.peer, []).append(exchange.tag)
    return {rank: Route(own, done[rank], num_micro_batches) for rank, own in of_rank.items()}


def groups(programs: Sequence[Program]) -> tuple[tuple[int, ...], ...]:
    """All sets of engines that reduce together, in an order that is the same everywhere."""
    found = {c.group for p in programs for c in p.combines.values()}
    found |= {t.group for p in programs for t in p.transfers.values() if t.kind == "all_reduce"}
    return tuple(sorted(group for group in found if len(group) > 1))
