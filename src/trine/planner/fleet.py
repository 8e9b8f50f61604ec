"""Fleet: engines with what their work and their talk cost, as the search asks for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from trine.cluster.cluster import Cluster, Engine
from trine.cost.analytic import Roofline
from trine.cost.collectives import over_cluster_s

RooflineOf = Callable[[int, str, str, bool], Roofline]  # engine, kind of work, data type, backward


@dataclass(frozen=True)
class Fleet:
    """Engines with what their work costs.  states: of the optimizer, for each parameter."""

    cluster: Cluster
    roofline: RooflineOf
    states: float = 1.0
    known: dict[tuple[object, ...], float] = field(default_factory=dict)

    def talk_s(self, operation: str, engines: Sequence[int], num_bytes: float) -> float:
        """Seconds of a collective; of a message between neighbours, over the slowest of the links."""
        if len(engines) < 2:
            return 0.0
        key = (operation, engines[0], engines[1] - engines[0], len(engines), num_bytes)
        if key not in self.known:
            if operation == "p2p":
                pairs = pairwise(engines)
                self.known[key] = max(self.cluster.link(a, b).time_s(num_bytes) for a, b in pairs)
            else:
                self.known[key] = over_cluster_s(operation, self.cluster, engines, num_bytes)
        return self.known[key]

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """The first engine of each kind."""
        return tuple(sorted(set(self.distinct.values())))

    @property
    def unequal(self) -> bool:
        """Whether there are different engines."""
        return len(self.kinds) > 1

    @cached_property
    def distinct(self) -> dict[int, int]:
        """Engine → the first that is equal to it."""
        known: list[tuple[Engine, int]] = []  # few, though engines be many
        result = {}
        for rank, engine in enumerate(self.cluster.engines):
            first = next((r for other, r in known if other is engine or other == engine), None)
            if first is None:
                known.append((engine, first := rank))
            result[rank] = first
        return result
