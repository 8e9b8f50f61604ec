"""The sum of gradients over engines, started while the backward pass still runs.

Gradients go into *buckets*, in the order in which the backward pass makes them, which is the same on every engine of a
group.  A bucket is sent off when its last gradient is there and all buckets before it are under way; what is still
missing at the end (a parameter that nothing used) counts as zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trine.program.program import Combine, Program
from trine.run.transport import Sum, Transport, split

BUCKET_BYTES = 8 * 1024**2  # large enough that a message's own cost is small beside its bytes


@dataclass
class Bucket:
    """Parameters whose gradients are summed together; ``sum`` is there once it is under way."""

    names: tuple[str, ...]
    flat: Tensor | None = None
    sum: Sum | None = None


@dataclass
class Combining:
    """The buckets of one Program; ``begin`` forgets the last step.

    last: (segment, micro-batch) → its tiles that are parameters whose gradient is complete after its backward pass.
    """

    program: Program
    transport: Transport
    last: dict[tuple[int, int | None], dict[int, str]] = field(default_factory=dict)
    ready: dict[str, Tensor] = field(default_factory=dict)
    queues: dict[int, list[Bucket]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last = last_backward(self.program)
        self.place = {name: number for number, c in self.program.combines.items() for name in c.parameters}

    def begin(self) -> None:
        """Start of a step."""
        sizes = {name: self.program.tiles[tile].num_bytes for tile, name in self.program.parameters.items()}
        self.ready = {}
        self.queues = {
            number: buckets(c, sizes)
            for number, c in self.program.combines.items()
            if len(c.group) > 1 and self.transport.sums_early(self.dtype(c))
        }

    def dtype(self, combine: Combine) -> str:
        """The type of a combine's gradients, one for all."""
        tiles = {name: tile for tile, name in self.program.parameters.items()}
        return self.program.tiles[tiles[combine.parameters[0]]].dtype

    def due(self, segment: int, micro_batch: int | None) -> dict[int, str]:
        """Parameters by tile whose gradient a backward pass completes; none where nothing is summed early."""
        return self.last.get((segment, micro_batch), {}) if self.queues else {}

    def put(self, name: str, gradient: Tensor) -> None:
        """A gradient is complete."""
        number = self.place.get(name)
        if number in self.queues:
            self.ready[name] = gradient
            self.send(number, self.ready.get)

    def send(self, number: int, gradient_of: Callable[[str], Tensor | None]) -> None:
        """Start the sums of the buckets that are complete, in order."""
        group = self.program.combines[number].group
        for bucket in self.queues[number]:
            if bucket.sum is None:
                gradients = [gradient for name in bucket.names if (gradient := gradient_of(name)) is not None]
                if len(gradients) < len(bucket.names):
                    return
                bucket.flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                bucket.sum = self.transport.start_sum(bucket.flat, group, ("c", number))

    def finish(self, number: int, gradient_of: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """The sums of one combine; ``gradient_of`` gives what is missing."""
        self.send(number, lambda name: self.ready[name] if name in self.ready else gradient_of(name))
        result = {}
        for bucket in self.queues.pop(number):
            assert bucket.flat is not None
            assert bucket.sum is not None
            bucket.sum.wait()
            for name, part in zip(
                bucket.names, split(bucket.flat, [gradient_of(n) for n in bucket.names]), strict=True
            ):
                result[name] = part
        self.transport.count_sum(sum(part.nbytes for part in result.values()), self.program.combines[number].group)
        return result


def buckets(combine: Combine, sizes: dict[str, int]) -> list[Bucket]:
    """A combine's parameters from the last to the first, in pieces of about ``BUCKET_BYTES``."""
    result: list[list[str]] = [[]]
    held = 0
    for name in reversed(combine.parameters):
        if held and held + sizes[name] > BUCKET_BYTES:
            result.append([])
            held = 0
        result[-1].append(name)
        held += sizes[name]
    return [Bucket(tuple(names)) for names in result]


def last_backward(program: Program) -> dict[tuple[int, int | None], dict[int, str]]:
    """Where each parameter's gradient is complete: in its last backward segment, if nothing else adds to it."""
    moved = {program.transfers[i.id].source for i in program.instructions if i.kind == "move_back"}
    tiles: dict[str, set[int]] = {}
    for tile, name in program.parameters.items():
        tiles.setdefault(name, set()).add(tile)
    alone = {tile: name for tile, name in program.parameters.items() if len(tiles[name]) == 1 and tile not in moved}
    found: dict[int, tuple[int, int | None]] = {}
    for i in program.instructions:
        if i.kind == "backward":
            found.update({tile: (i.id, i.micro_batch) for tile in program.segments[i.id].inputs if tile in alone})
    result: dict[tuple[int, int | None], dict[int, str]] = {}
    for tile, place in found.items():
        result.setdefault(place, {})[tile] = alone[tile]
    return result
