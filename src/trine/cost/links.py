"""What links between engines reach in collectives, measured: constants, and times of collectives made from them.

    all-reduce          t = start + 2 (n-1) step + S / copy + 2 (n-1)/n S / (share B)
    all-gather, reduce-scatter          the same with n-1 steps, half the copying and half the bytes
    message             t = latency + S / 2 copy + S / (share B)

S bytes of the full tensor, n ranks in one node, B bytes/s that the maker prints for one direction of an engine's links.
The ring's terms are those of ``collectives.py``; ``copy`` is the tensor's way through the buffers of the library.
Over several nodes an all-reduce is hierarchical (inside, across on a share, inside), the other two are one flat ring
through all ranks.  Left out: in-switch reduction, trees, and collectives that run at once on one link.
"""

import msgspec

from trine.cluster.cluster import Link
from trine.cluster.presets import Preset
from trine.cost.collectives import ring_s

US = 1e-6


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the formula above for one family of engines."""

    start_s: float
    step_s: float
    copy_bytes_per_s: float
    share: float
    source: str


REACHED = {
    "a100": Reach(
        start_s=37 * US,
        step_s=2.2 * US,
        copy_bytes_per_s=530e9,
        share=0.976,
        source="fitted on nccl-tests all-reduce, 1 MB to 1 GB, 2 to 8 A100 of one node (vTrain, MIT): mean error 4.4 %",
    ),
    "v100": Reach(
        start_s=30 * US,
        step_s=3.4 * US,
        copy_bytes_per_s=float("inf"),
        share=0.919,
        source="fitted on nccl-tests all-reduce over all 8 V100 of a DGX-1, with NCCL's step of NVLink (vTrain, MIT): "
        "mean error 6.5 %; no copying shows",
    ),
    "h100": Reach(
        start_s=6.8 * US,
        step_s=1.75 * US,
        copy_bytes_per_s=1273e9,
        share=0.967,
        source="through the all-reduce of 1 GB over 2 and 4 H100 of one node (324 and 236 GB/s) and its smallest times "
        "(10, 15, 31 us; autoparallel, BSD-3); over 8 the switch reduces, which is left out",
    ),
}
"""By the first part of an engine's name."""

NETWORK_SHARE = 0.87
"""Share of an adapter's rate that collectives over nodes reach: the mean of 0.78, 0.89 and 0.95, measured on 2, 4 and 8
nodes of H100 with one adapter a GPU (nccl-tests, by way of autoparallel, BSD-3)."""

UNMEASURED = Reach(start_s=0.0, step_s=0.0, copy_bytes_per_s=float("inf"), share=0.9, source="assumed")


class Wires(msgspec.Struct, frozen=True, kw_only=True):
    """The links of equal engines in equal nodes: inside a node, and one adapter for each engine."""

    node_size: int
    inside: Link
    adapter: Link
    reach: Reach = UNMEASURED

    def all_reduce_s(self, num_bytes: float, within: int, across: int = 1) -> float:
        """Seconds over ``within`` ranks in each of ``across`` nodes."""
        inside = self._inside_s("all_reduce", num_bytes, within)
        return inside + ring_s("all_reduce", across, num_bytes / within, self.adapter)

    def gather_s(self, num_bytes: float, within: int, across: int = 1) -> float:
        """Seconds of an all-gather, or of a reduce-scatter, of ``num_bytes`` in full."""
        inside = self._inside_s("all_gather", num_bytes, within)
        if across == 1:
            return inside
        num_ranks = within * across
        side_by_side = Link(latency_s=0.0, bandwidth_bytes_per_s=within * self.adapter.bandwidth_bytes_per_s)
        flat = ring_s("all_gather", num_ranks, num_bytes, side_by_side)
        around_s = across * ((within - 1) * self.reach.step_s + self.adapter.latency_s)
        return max(inside, flat) + around_s

    def send_s(self, num_bytes: float, *, inside: bool) -> float:
        """Seconds of one message between two engines of one node, or of two."""
        if not inside:
            return self.adapter.time_s(num_bytes)
        copied = 0.5 * num_bytes / self.reach.copy_bytes_per_s
        return self.inside.latency_s + copied + num_bytes / (self.inside.bandwidth_bytes_per_s * self.reach.share)

    def _inside_s(self, operation: str, num_bytes: float, num_ranks: int) -> float:
        if num_ranks == 1:
            return 0.0
        bandwidth = self.inside.bandwidth_bytes_per_s * self.reach.share
        passes = 1.0 if operation == "all_reduce" else 0.5
        link = Link(latency_s=self.reach.step_s, bandwidth_bytes_per_s=bandwidth)
        copied = passes * num_bytes / self.reach.copy_bytes_per_s
        return self.reach.start_s + copied + ring_s(operation, num_ranks, num_bytes, link)


def wires(preset: Preset, *, node_size: int | None = None) -> Wires:
    """The links of a preset, at the rates that its family was measured to reach; ``node_size`` where it is not 8."""
    tier = preset.tiers[0]
    network = preset.network
    return Wires(
        node_size=node_size or tier.size,
        inside=tier.link,
        adapter=Link(latency_s=network.latency_s, bandwidth_bytes_per_s=network.bandwidth_bytes_per_s * NETWORK_SHARE),
        reach=REACHED.get(preset.engine.name.split("-")[0], UNMEASURED),
    )
