"""Room: whether engines have the memory that is needed of them, each its own and together what they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trine.cluster.cluster import Cluster
from trine.units import BYTES


@dataclass(frozen=True)
class Shortage:
    """Engines ``first`` to ``last`` that need more bytes than they have."""

    first: int
    last: int
    need_bytes: int
    limit_bytes: int

    @property
    def excess(self) -> float:
        """Need over limit."""
        return self.need_bytes / self.limit_bytes

    def __str__(self) -> str:
        one = self.first == self.last
        who = f"engine {self.first} needs" if one else f"engines {self.first} to {self.last} together need"
        return f"{who} {BYTES.format(self.need_bytes)}, and there are {BYTES.format(self.limit_bytes)}"


def shortage(cluster: Cluster, needs_bytes: Sequence[int]) -> Shortage | None:
    """The worst shortage if engine i holds ``needs_bytes[i]``; None if all of them fit."""
    return max(_shortages(cluster, needs_bytes), key=lambda short: short.excess, default=None)


def _shortages(cluster: Cluster, needs_bytes: Sequence[int]) -> Iterator[Shortage]:
    """A core's own memory is its even share of a common one (see ``Engine``): it may take what the others leave."""
    common = any(shared.memory_bytes is not None for shared in cluster.shared)
    for rank, (need, engine) in enumerate(zip(needs_bytes, cluster.engines, strict=False)):
        if need > engine.memory_bytes and not (common and engine.kind == "cpu-core"):
            yield Shortage(rank, rank, need, engine.memory_bytes)
    for shared in cluster.shared:
        for low in range(0, len(needs_bytes), shared.size):
            mine = needs_bytes[low : low + shared.size]
            if shared.memory_bytes is not None and sum(mine) > shared.memory_bytes:
                yield Shortage(low, low + len(mine) - 1, sum(mine), shared.memory_bytes)
