"""How tiles get from one engine to another.

A transport is written as generators so that one executor serves all: in lockstep ``get`` yields until the message
is there, elsewhere it blocks and never yields.  A sent tensor is immutable until its receiver is done with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trine.cost.collectives import ring_bytes

Tag = tuple[int | str | None, ...]
Waiting = Generator[None, None, Tensor]
Sums = Generator[None, None, list[Tensor]]


class Sum(Protocol):
    """A sum over engines that is under way."""

    def wait(self) -> object:
        """Until it is there."""


def split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Pieces of a flat tensor with the shapes of others, as views."""
    parts = flat.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


class Transport(ABC):
    """Abstract: one engine's end of all its links.  ``bytes_sent`` counts what leaves the engine."""

    def __init__(self, rank: int) -> None:
        self.rank, self.bytes_sent = rank, 0

    @abstractmethod
    def put(self, peer: int, tag: Tag, tensor: Tensor) -> None:
        """Hand a tensor over; returns at once."""

    @abstractmethod
    def get(self, peer: int, tag: Tag, like: Tensor) -> Waiting:
        """The tensor that the peer sent under this tag; ``like`` has its shape and type."""

    def send(self, peer: int, tag: Tag, tensor: Tensor) -> None:
        """Send and count."""
        self.bytes_sent += tensor.nbytes
        self.put(peer, tag, tensor)

    def all_reduce(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> Waiting:
        """The sum over a group, added in order of rank on every member: all get the same bits.  Counted as a ring
        moves it: 2(n−1)/n of the tensor leaves each engine."""
        self.count_sum(tensor.nbytes, group)
        self.give(tensor, group, tag)
        return (yield from self.add_up(tensor, group, tag))

    def give(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> None:
        """Hand a tensor to everybody else of a group."""
        for peer in group:
            if peer != self.rank:
                self.put(peer, tag, tensor)

    def add_up(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> Waiting:
        """The sum of one's own tensor and those that the others gave, in order of rank."""
        total: Tensor | None = None
        for peer in group:
            part = tensor if peer == self.rank else (yield from self.get(peer, tag, tensor))
            total = part if total is None else total + part
        assert total is not None
        return total

    def combine(self, gradients: Sequence[Tensor], group: Sequence[int], tag: Tag) -> Sums:
        """The sums of several tensors of one type, in one message."""
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        total = yield from self.all_reduce(flat, group, tag)
        return split(total, gradients)

    def sums_early(self, dtype: str) -> bool:
        """Whether ``start_sum`` is there for tensors of a type."""
        return False

    def start_sum(self, tensor: Tensor, group: Sequence[int], tag: Tag) -> Sum:
        """Begin to sum a flat tensor over a group, in place."""
        raise NotImplementedError(f"{type(self).__name__} sums when all engines are there")

    def count_sum(self, num_bytes: int, group: Sequence[int]) -> None:
        """Count a sum of so many bytes."""
        self.bytes_sent += ring_bytes(len(group), num_bytes)


class Mail(Transport):
    """Lockstep: mailboxes in one process."""

    def __init__(self, rank: int, boxes: dict[tuple[int, int, Tag], Tensor]) -> None:
        super().__init__(rank)
        self.boxes = boxes

    def put(self, peer: int, tag: Tag, tensor: Tensor) -> None:
        key = (self.rank, peer, tag)
        if key in self.boxes:
            raise RuntimeError(f"engine {self.rank} sends {tag} to engine {peer} twice")
        self.boxes[key] = tensor

    def combine(self, gradients: Sequence[Tensor], group: Sequence[int], tag: Tag) -> Sums:
        """One by one: all engines share one memory, and nothing need be copied into one message."""
        self.count_sum(sum(gradient.nbytes for gradient in gradients), group)
        for number, gradient in enumerate(gradients):
            self.give(gradient, group, (*tag, number))
        sums = []
        for number, gradient in enumerate(gradients):
            sums.append((yield from self.add_up(gradient, group, (*tag, number))))
        return sums

    def get(self, peer: int, tag: Tag, like: Tensor) -> Waiting:
        while (peer, self.rank, tag) not in self.boxes:
            yield
        tensor = self.boxes.pop((peer, self.rank, tag))
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise RuntimeError(
                f"engine {peer} sent {tuple(tensor.shape)}, engine {self.rank} expects {tuple(like.shape)}"
            )
        return tensor


def empty(shape: Sequence[int], dtype: str) -> Tensor:
    """An uninitialised tensor by the name of its type."""
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
