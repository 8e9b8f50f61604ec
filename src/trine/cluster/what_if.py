"""What if something of a cluster were so many times as fast, or as large."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trine.errors import UnknownName

if TYPE_CHECKING:  # the command line reads this, and must start at once
    from trine.cluster.cluster import Cluster, Engine, Shared

CHANGES = ("link", "compute", "bandwidth", "memory")


@dataclass(frozen=True)
class Change:
    """One ``--what-if``: something, and how many times as fast or large it is."""

    what: str
    factor: float

    def __str__(self) -> str:
        return f"{self.what} {self.factor:g}x"


def changed(cluster: "Cluster", what: str, factor: float) -> "Cluster":
    """``link``: the bandwidth of all links; ``compute``: arithmetic; ``bandwidth``: of engines' memory; ``memory``: how
    much there is of it.  Raises UnknownName for anything else."""
    if what not in CHANGES:
        raise UnknownName("change of the cluster", what, CHANGES)
    if what == "link":
        links = [replace(t.link, bandwidth_bytes_per_s=t.link.bandwidth_bytes_per_s * factor) for t in cluster.tiers]
        tiers = tuple(replace(tier, link=link) for tier, link in zip(cluster.tiers, links, strict=True))
        return replace(cluster, tiers=tiers)
    known = {id(engine): _engine(engine, what, factor) for engine in cluster.engines}
    engines = tuple(known[id(engine)] for engine in cluster.engines)
    return replace(cluster, engines=engines, shared=tuple(_shared(each, what, factor) for each in cluster.shared))


def outer_link(cluster: "Cluster", times_slower: float) -> "Cluster":
    """The outermost tier with a link so many times slower than that of the tier inside it."""
    *inner, last = cluster.tiers
    bandwidth = inner[-1].link.bandwidth_bytes_per_s / times_slower
    link = replace(last.link, bandwidth_bytes_per_s=bandwidth)
    return replace(cluster, tiers=(*inner, replace(last, link=link)))


def _engine(engine: "Engine", what: str, factor: float) -> "Engine":
    if what == "compute":
        return replace(engine, peak_flops_per_s={k: v * factor for k, v in engine.peak_flops_per_s.items()})
    if what == "bandwidth":
        return replace(engine, memory_bandwidth_bytes_per_s=engine.memory_bandwidth_bytes_per_s * factor)
    return replace(engine, memory_bytes=int(engine.memory_bytes * factor))


def _shared(shared: "Shared", what: str, factor: float) -> "Shared":
    if what == "bandwidth":
        return replace(shared, bandwidth_bytes_per_s=shared.bandwidth_bytes_per_s * factor)
    if what == "memory" and shared.memory_bytes is not None:
        return replace(shared, memory_bytes=int(shared.memory_bytes * factor))
    return shared
