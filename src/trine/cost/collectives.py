"""Time and bytes of collectives: alpha-beta formulas.

n ranks, S bytes of the FULL tensor, a latency of a step, B bytes/s of a link in each direction.  Ring, recursive and
tree forms are those of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
(2005); the split of a ring's steps into those inside and between groups is NCCL's (tuning.cc, BSD-3).  Contention
between collectives that run at once, switches that reduce, and NCCL's protocol thresholds are left out.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from trine.cluster.cluster import Cluster, Link
from trine.cost.profile import LinkTable
from trine.errors import BadInput, UnknownName, listing

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p"]
OPERATIONS: tuple[str, ...] = get_args(Collective)


def _check(operation: str, num_ranks: int, num_bytes: float) -> None:
    if operation not in OPERATIONS:
        raise UnknownName("collective", operation, OPERATIONS)
    if num_ranks < 1 or num_bytes < 0:
        raise BadInput(
            f"{operation} of {num_bytes:g} bytes over {num_ranks} ranks was asked for.",
            "It needs 1 rank or more and 0 bytes or more.",
        )


def bytes_in_all(operation: str, num_ranks: int, num_bytes: int) -> int:
    """Bytes that all ranks send, added up: exact, also where S does not divide by n.

    All-reduce 2(n-1)S; reduce-scatter, all-gather, broadcast (n-1)S; all-to-all of S on each rank (n-1)S; p2p S.
    """
    _check(operation, num_ranks, num_bytes)
    if operation == "p2p":
        return num_bytes
    return (2 if operation == "all_reduce" else 1) * (num_ranks - 1) * num_bytes


def ring_bytes(num_ranks: int, num_bytes: int) -> int:
    """Bytes that leave one rank in an all-reduce, as they are counted: 2(n-1)S/n, rounded down."""
    return 2 * (num_ranks - 1) * num_bytes // num_ranks


def bytes_per_rank(operation: str, num_ranks: int, num_bytes: int) -> float:
    """Bytes that one rank sends, in the mean over the ranks; a point-to-point message is one rank's."""
    whole = bytes_in_all(operation, num_ranks, num_bytes)
    return float(whole) if operation == "p2p" else whole / num_ranks


def num_steps(operation: str, num_ranks: int) -> int:
    """Messages that follow one another in a ring: 2(n-1) for all-reduce, n-1 for the others, 1 for p2p."""
    _check(operation, num_ranks, 0)
    return 1 if operation == "p2p" else (2 if operation == "all_reduce" else 1) * (num_ranks - 1)


def ring_s(operation: str, num_ranks: int, num_bytes: float, link: Link) -> float:
    """Seconds by a ring (all-to-all: pairwise; broadcast: pipelined along the ring in small chunks)."""
    _check(operation, num_ranks, num_bytes)
    if num_ranks == 1:
        return 0.0
    share = 1.0 if operation in ("p2p", "broadcast") else (num_ranks - 1) / num_ranks
    volume = (2 if operation == "all_reduce" else 1) * share * num_bytes
    return num_steps(operation, num_ranks) * link.latency_s + volume / link.bandwidth_bytes_per_s


def recursive_s(operation: str, num_ranks: int, num_bytes: float, link: Link) -> float:
    """Seconds by halving and doubling: the ring's bytes in log2(n) steps (all-reduce: 2 log2(n)); broadcast by a tree.

    For n that is no power of two the steps are rounded up.  All-to-all and p2p have no such form: theirs is the ring's.
    """
    if operation in ("all_to_all", "p2p") or num_ranks == 1:
        return ring_s(operation, num_ranks, num_bytes, link)
    _check(operation, num_ranks, num_bytes)
    steps = math.ceil(math.log2(num_ranks))
    if operation == "broadcast":
        return steps * link.time_s(num_bytes)
    factor = 2 if operation == "all_reduce" else 1
    volume = factor * (num_ranks - 1) / num_ranks * num_bytes
    return factor * steps * link.latency_s + volume / link.bandwidth_bytes_per_s


def tree_all_reduce_s(num_ranks: int, num_bytes: float, link: Link) -> float:
    """All-reduce by two pipelined binary trees: 2 log2(n) a + 2 S/B (Sanders, Speck and Traff, 2009)."""
    _check("all_reduce", num_ranks, num_bytes)
    if num_ranks == 1:
        return 0.0
    return 2 * math.ceil(math.log2(num_ranks)) * link.latency_s + 2 * num_bytes / link.bandwidth_bytes_per_s


def best_s(operation: str, num_ranks: int, num_bytes: float, link: Link) -> float:
    """Seconds by the fastest of the algorithms above, over one kind of link."""
    times = [ring_s(operation, num_ranks, num_bytes, link), recursive_s(operation, num_ranks, num_bytes, link)]
    if operation == "all_reduce":
        times.append(tree_all_reduce_s(num_ranks, num_bytes, link))
    return min(times)


def halo_s(num_bytes: float, link: Link, num_neighbours: int = 2) -> float:
    """Seconds to give ``num_bytes`` to each of the neighbours, one after the other on one link: k a + k S/B."""
    return num_neighbours * link.time_s(num_bytes)


def from_table(operation: str, num_ranks: int, num_bytes: float, table: LinkTable) -> float:
    """Seconds over ``num_ranks``, from a table measured over ``table.num_ranks``: exact where the two agree.

    Elsewhere the smallest message's time, taken as latency, grows with the steps of a ring, the rest with its bytes.
    """
    _check(operation, num_ranks, num_bytes)
    if num_ranks == 1:
        return 0.0
    latency = table.times_s[0]
    rest = table.time_s(num_bytes) - latency
    steps = num_steps(operation, num_ranks) / num_steps(operation, table.num_ranks)
    volume = ring_s(operation, num_ranks, 1.0, _UNIT) / ring_s(operation, table.num_ranks, 1.0, _UNIT)
    return latency * steps + rest * volume


_UNIT = Link(latency_s=0.0, bandwidth_bytes_per_s=1.0)


def _levels(cluster: Cluster, engines: Sequence[int]) -> list[tuple[Link, list[list[int]]]]:
    """Innermost first: the link of each tier that joins some of the engines, and the groups that it makes of them."""
    levels: list[tuple[Link, list[list[int]]]] = []
    num_before = len(engines)
    for tier in cluster.tiers:
        groups: dict[int, list[int]] = {}
        for engine in engines:
            groups.setdefault(engine // tier.size, []).append(engine)
        if len(groups) < num_before:
            levels.append((tier.link, list(groups.values())))
            num_before = len(groups)
    return levels


def over_cluster_s(operation: str, cluster: Cluster, engines: Sequence[int], num_bytes: float) -> float:
    """Seconds of a collective between these engines of a cluster: the faster of one flat ring and, for all-reduce over
    equal groups, the hierarchical form: reduce-scatter inside, all-reduce of a share across, all-gather inside.
    """
    _check(operation, len(engines), num_bytes)
    if len(set(engines)) != len(engines):
        raise BadInput(
            f"{operation} between engines {listing(engines)} was asked for.",
            "Each engine takes part once.",
            "Name no engine twice.",
        )
    if len(engines) == 1:
        return 0.0
    cluster.link(min(engines), max(engines))  # raises unless both are engines of this cluster
    levels = _levels(cluster, engines)
    if len(levels) == 1 or operation == "p2p":
        return best_s(operation, len(engines), num_bytes, levels[-1][0])
    flat = _flat_ring_s(operation, len(engines), num_bytes, levels)
    inner = levels[-2][1]
    if operation != "all_reduce" or len({len(group) for group in inner}) > 1:
        return flat
    within = max(
        over_cluster_s("reduce_scatter", cluster, group, num_bytes)
        + over_cluster_s("all_gather", cluster, group, num_bytes)
        for group in inner
    )
    return min(flat, within + best_s("all_reduce", len(inner), num_bytes / len(inner[0]), levels[-1][0]))


def _flat_ring_s(operation: str, num_ranks: int, num_bytes: float, levels: list[tuple[Link, list[list[int]]]]) -> float:
    """One ring through all groups.  The g engines of a group use their g outer links side by side, so it runs at the
    slowest of (inner B, g outer B); of its steps N-1 (all-reduce: twice) cross between N groups, at the outer latency.
    A broadcast has one sender, hence one outer link.
    """
    factor = num_steps(operation, num_ranks) // (num_ranks - 1)
    num_groups = [num_ranks, *(len(groups) for _, groups in levels)]
    smallest = [1, *(min(len(group) for group in groups) for _, groups in levels)]
    latency, bandwidth = 0.0, float("inf")
    for level, (link, _) in enumerate(levels):
        latency += factor * (num_groups[level] - num_groups[level + 1]) * link.latency_s
        side_by_side = 1 if operation == "broadcast" else smallest[level]
        bandwidth = min(bandwidth, side_by_side * link.bandwidth_bytes_per_s)
    return latency + ring_s(operation, num_ranks, num_bytes, _UNIT) / bandwidth
