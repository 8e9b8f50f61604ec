"""A transport over ``torch.distributed``: one process per engine, tensors as messages.

Receives are posted before their turn, sends are awaited only when they are known to be done: a send on gloo ends when
the receiver has taken it, so waiting for it at once would deadlock 1F1B.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trine.run.routes import Route
from trine.run.transport import Sum, Tag, Transport, Waiting, empty

SUMMED = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
)
AHEAD = 1  # exchanges whose receives are posted before their turn, so that data come in while a segment runs


class PeerLost(Exception):
    """A message could not be sent or did not come: another engine failed, or did not answer in time."""


@dataclass(frozen=True)
class Summing:
    """A sum that gloo makes meanwhile."""

    work: dist.Work
    tag: Tag

    def wait(self) -> None:
        """Until it is there.  Raises PeerLost."""
        with _talking(f"the sum {self.tag}"):
            self.work.wait()


@contextmanager
def _talking(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"{what}: {error}") from error


class Gloo(Transport):
    """One engine's end of all its links.  ``begin`` and ``finish`` enclose a step."""

    def __init__(
        self, rank: int, route: Route, groups: Mapping[tuple[int, ...], dist.ProcessGroup],
        combining: Mapping[tuple[int, ...], dist.ProcessGroup] | None = None,
    ) -> None:  # fmt: skip
        """``combining``: groups of their own for sums of gradients, whose order among other collectives is open."""
        super().__init__(rank)
        self.route, self.groups, self.bytes_received = route, groups, 0
        self.combining = combining or {}
        self.places = {exchange.tag: place for place, exchange in enumerate(route.exchanges)}
        self.posted: dict[tuple[int, Tag], tuple[Tensor, dist.Work]] = {}
        self.sent: dict[tuple[int, Tag], tuple[Tensor, dist.Work]] = {}
        self.next, self.end = 0, len(route.exchanges)

    def begin(self, part: str = "all") -> None:
        """Start of a step, or of its forward or backward part: post the first receives."""
        self.next, self.end = self.route.span(part)
        self._post_up_to(self.next + AHEAD - 1)

    def finish(self) -> None:
        """End of a step: wait for the sends of which nothing has said that they are done."""
        for peer, tag in list(self.sent):
            self._await_send(peer, tag)

    def put(self, peer: int, tag: Tag, tensor: Tensor) -> None:
        if tensor.numel() == 0:
            return
        if tag in self.places:
            self._post_up_to(self.places[tag])
        tensor = tensor.detach().contiguous()
        with _talking(f"{tag} for engine {peer}"):
            work = dist.isend(tensor, peer, tag=self.route.number(tag))
        assert work is not None
        self.sent[peer, tag] = (tensor, work)  # the tensor lives until the peer has it

    def get(self, peer: int, tag: Tag, like: Tensor) -> Waiting:
        if like.numel() == 0:
            return like
        if tag in self.places:
            self._post_up_to(self.places[tag] + AHEAD)
        if (peer, tag) not in self.posted:
            self._post(peer, tag, torch.empty(like.shape, dtype=like.dtype))  # ``like`` may hold data
        tensor, work = self.posted.pop((peer, tag))
        with _talking(f"{tag} from engine {peer}"):
            work.wait()
        self.bytes_received += tensor.nbytes
        for done in self.route.done.get((peer, tag), ()):
            if (peer, done) in self.sent:  # else it was awaited at the end of the forward part
                self._await_send(peer, done)
        return tensor
        yield  # a generator that never waits

    def all_reduce(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> Waiting:
        """The sum over a group by gloo's own ring; all members get the same bits."""
        if tensor.numel() == 0:
            return tensor
        before = self.bytes_sent
        if tensor.dtype in SUMMED:
            self.count_sum(tensor.nbytes, group)
            total = tensor.detach().clone(memory_format=torch.contiguous_format)
            with _talking(f"the sum {tag} over engines {', '.join(map(str, group))}"):
                dist.all_reduce(total, group=self.groups[tuple(group)])
            return total
        received = self.bytes_received
        total = yield from super().all_reduce(tensor, group, tag)
        self.bytes_received = received + self.bytes_sent - before  # counted as a ring, as the sent ones are
        return total

    def sums_early(self, dtype: str) -> bool:
        return bool(self.combining) and getattr(torch, dtype) in SUMMED

    def start_sum(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> Sum:
        with _talking(f"the sum {tag} over engines {', '.join(map(str, group))}"):
            work = dist.all_reduce(tensor, group=self.combining[tuple(group)], async_op=True)
        assert work is not None
        return Summing(work, tag)

    def count_sum(self, num_bytes: int, group: Sequence[int]) -> None:
        before = self.bytes_sent
        super().count_sum(num_bytes, group)
        self.bytes_received += self.bytes_sent - before

    def _post_up_to(self, place: int) -> None:
        while self.next <= min(place, self.end - 1):
            exchange = self.route.exchanges[self.next]
            self.next += 1
            for message in exchange.receives:
                self._post(message.peer, exchange.tag, empty(message.shape, message.dtype))

    def _post(self, peer: int, tag: Tag, buffer: Tensor) -> None:
        with _talking(f"{tag} from engine {peer}"):
            work = dist.irecv(buffer, peer, tag=self.route.number(tag))
        assert work is not None
        self.posted[peer, tag] = (buffer, work)

    def _await_send(self, peer: int, tag: Tag) -> None:
        with _talking(f"{tag} for engine {peer}"):
            self.sent[peer, tag][1].wait()
        del self.sent[peer, tag]


def make_groups(wanted: Sequence[tuple[int, ...]], *, own: bool = False) -> dict[tuple[int, ...], dist.ProcessGroup]:
    """Process groups for these sets of ranks; called with the same sets in the same order on every rank.  ``own``: new
    ones, in which nobody else talks."""
    everybody = tuple(range(dist.get_world_size()))
    result = {}
    for ranks in wanted:
        group = dist.group.WORLD if ranks == everybody and not own else dist.new_group(list(ranks))
        if isinstance(group, dist.ProcessGroup):  # else this rank is not in it
            result[ranks] = group
    return result
