"""Cluster: what the engines are, which links they talk over and what they share.

Engines are numbered from 0.  A tier cuts that row into groups of ``size`` neighbours; two engines talk over the link of
the innermost (smallest) tier that holds both in one group.  A thousand equal engines are one ``Engine`` named a
thousand times, so a big cluster costs nothing.
"""

from collections import Counter
from itertools import pairwise

import msgspec

from trine.errors import BadInput, UnknownName

DTYPES = ("float64", "float32", "tfloat32", "float16", "bfloat16", "float8", "int8")


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that computes.

    ``peak_flops_per_s`` maps a data type to arithmetic operations a second (a multiply-add counts two);
    ``launch_s`` is what starting one operator costs, however small.  A core's memory is its even share of the whole.
    """

    name: str
    kind: str
    peak_flops_per_s: dict[str, float]
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    launch_s: float = 0.0

    def peak(self, dtype: str) -> float:
        """FLOP/s in that data type.  Raises UnknownName if the engine has no rate for it."""
        if dtype not in self.peak_flops_per_s:
            raise UnknownName(f"data type of engine {self.name!r}", dtype, sorted(self.peak_flops_per_s))
        return self.peak_flops_per_s[dtype]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A message of S bytes takes ``latency_s + S / bandwidth_bytes_per_s``, in each direction, for each engine."""

    latency_s: float
    bandwidth_bytes_per_s: float

    def time_s(self, num_bytes: float) -> float:
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of ``size`` neighbouring engines, inside which any two talk over ``link``."""

    name: str
    size: int
    link: Link


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What groups of ``size`` neighbouring engines share: together they move no more than ``bandwidth_bytes_per_s``
    and hold no more than ``memory_bytes`` (None: no limit of its own)."""

    name: str
    size: int
    bandwidth_bytes_per_s: float
    memory_bytes: int | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Engines, tiers from the innermost to the outermost, shared resources.  Raises BadInput if it breaks a rule."""

    name: str
    engines: tuple[Engine, ...]
    tiers: tuple[Tier, ...] = ()
    shared: tuple[Shared, ...] = ()

    def __post_init__(self) -> None:
        found = faults(self)
        if found:
            raise BadInput(f"Cluster {self.name!r} breaks a rule:", "; ".join(found) + ".")

    @property
    def num_engines(self) -> int:
        return len(self.engines)

    def tier(self, a: int, b: int) -> Tier:
        """The innermost tier that holds engines ``a`` and ``b`` in one group."""
        for engine in (a, b):
            if not 0 <= engine < len(self.engines):
                raise BadInput(
                    f"Cluster {self.name!r} has no engine {engine}.",
                    f"It has engines 0 to {len(self.engines) - 1}.",
                )
        if a == b:
            raise BadInput(
                f"The link of engine {a} of cluster {self.name!r} to itself was asked for.",
                "A link joins two engines.",
                "Give two different engines.",
            )
        return next(tier for tier in self.tiers if a // tier.size == b // tier.size)

    def link(self, a: int, b: int) -> Link:
        """The link over which engines ``a`` and ``b`` talk."""
        return self.tier(a, b).link

    def first(self, count: int) -> "Cluster":
        """The first ``count`` engines, with what joins them."""
        if not 1 <= count <= len(self.engines):
            raise BadInput(
                f"{count} engines of cluster {self.name!r} were asked for.",
                f"It has {len(self.engines)}.",
                f"Ask for 1 to {len(self.engines)}.",
            )
        return msgspec.structs.replace(self, engines=self.engines[:count])

    def __str__(self) -> str:
        counts = Counter(engine.name for engine in self.engines)
        tiers = ", ".join(f"{tier.name} of {tier.size}" for tier in self.tiers)
        return f"{self.name}: " + ", ".join(f"{n} x {name}" for name, n in counts.items()) + f" ({tiers or 'alone'})"


def _positive(what: str, value: float) -> list[str]:
    return [] if value > 0 and value < float("inf") else [f"{what} is {value:g}; it must be above 0 and finite"]


def _engine_faults(engine: Engine) -> list[str]:
    found = _positive(f"memory of {engine.name!r}", engine.memory_bytes)
    found += _positive(f"memory bandwidth of {engine.name!r}", engine.memory_bandwidth_bytes_per_s)
    if not engine.peak_flops_per_s:
        found.append(f"engine {engine.name!r} has no arithmetic rate for any data type")
    for dtype, rate in engine.peak_flops_per_s.items():
        if dtype not in DTYPES:
            found.append(f"engine {engine.name!r} names data type {dtype!r}; known are {', '.join(DTYPES)}")
        found += _positive(f"{dtype} rate of {engine.name!r}", rate)
    if not 0 <= engine.launch_s < float("inf"):
        found.append(f"launch of {engine.name!r} is {engine.launch_s:g} s; it must be 0 or more and finite")
    return found


def faults(cluster: Cluster) -> list[str]:
    """The legality rules of a cluster: one sentence per rule that is broken."""
    if not cluster.engines:
        return ["it has no engine"]
    found: list[str] = []
    for engine in {id(e): e for e in cluster.engines}.values():
        found += _engine_faults(engine)
    sizes = [tier.size for tier in cluster.tiers]
    if any(size < 2 for size in sizes):
        found.append(f"tier sizes are {sizes}; a tier joins 2 engines or more")
    if any(outer <= inner or outer % max(inner, 1) for inner, outer in pairwise(sizes)):
        found.append(f"tier sizes are {sizes}; each must be a larger multiple of the one before it")
    if len(cluster.engines) > 1 and (not sizes or sizes[-1] < len(cluster.engines)):
        found.append(f"{len(cluster.engines)} engines, but the outermost tier joins {sizes[-1] if sizes else 1}")
    for tier in cluster.tiers:
        found += _positive(f"bandwidth of tier {tier.name!r}", tier.link.bandwidth_bytes_per_s)
        if not 0 <= tier.link.latency_s < float("inf"):
            found.append(f"latency of tier {tier.name!r} is {tier.link.latency_s:g} s; it must be 0 or more and finite")
    for shared in cluster.shared:
        found += _positive(f"bandwidth of shared {shared.name!r}", shared.bandwidth_bytes_per_s)
        if shared.size < 1:
            found.append(f"shared {shared.name!r} has size {shared.size}; it must be 1 or more")
        if shared.memory_bytes is not None:
            found += _positive(f"memory of shared {shared.name!r}", shared.memory_bytes)
    return found
