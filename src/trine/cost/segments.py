"""What a segment, a message, a combine and an optimizer step cost: the protocol that the simulator asks.

Two answers: :class:`MeasuredCosts` from the single operators, links and launch costs of a Profile, and
:class:`AnalyticCosts` from the data sheets of a Cluster.  Neither knows a run of the model under any plan.
"""

from collections.abc import Container, Sequence
from typing import Literal, Protocol

import msgspec

from trine.cluster.cluster import Cluster
from trine.cost.analytic import Roofline, from_engine, from_profile
from trine.cost.collectives import from_table, over_cluster_s
from trine.cost.keys import ACTIVE, VIEWS, is_active, operator_keys, parse
from trine.cost.memory_tables import COPY_KINDS, MESSAGE, SEGMENT, OptimizerCost, SizeTable, optimizer_cost, size_table
from trine.cost.profile import Profile, Timing
from trine.graph.graph import ITEM_BYTES, Operator
from trine.graph.part import Box, full, volume
from trine.operators.family import family_of
from trine.program.program import Program, Segment

Direction = Literal["forward", "backward"]
LinkKind = Literal["threads", "processes"]
CopyKind = Literal["copy", "add", "zero"]


class Message(msgspec.Struct, frozen=True):
    """What one message costs: seconds that the sender and the receiver are busy with it, that it occupies the sender's
    link, and that pass besides."""

    send_s: float = 0.0
    wire_s: float = 0.0
    latency_s: float = 0.0
    receive_s: float = 0.0


class Costs(Protocol):
    """Seconds for everything that an engine does."""

    def segment_s(self, program: Program, segment_id: int, direction: Direction) -> float:
        """Seconds of a segment, its start included."""

    def transfer_s(self, program: Program, peer: int, num_bytes: int) -> Message:
        """A message from the Program's engine to a peer; to itself it is a piece that stays."""

    def all_reduce_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        """An all-reduce of one tensor, from the arrival of its last engine."""

    def combine_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        """The sum of gradients that are so large together, from the arrival of its last engine."""

    def copy_s(self, program: Program, kind: CopyKind, num_bytes: int, direction: Direction) -> float:
        """Writing, adding or clearing that many bytes in a new tensor of the engine.  On the way forward its memory is
        fresh, on the way back it is what forward's tensors left."""

    def optimize_s(self, program: Program) -> float:
        """The optimizer's step on what the engine holds."""

    def calibrated(self, programs: Sequence[Program]) -> bool:
        """Whether nothing of this rests on a data sheet or on a rate in place of the operator's own time."""


class MeasuredCosts:
    """From a Profile of this machine, for ``concurrency`` engines at work at once (they share memory and clock).

    An operator that was not timed gets the roofline of the measured rates; ``calibrated`` is then false.
    """

    def __init__(
        self, profile: Profile, concurrency: int, link: LinkKind = "threads", optimizer: str = "",
    ) -> None:  # fmt: skip
        self.profile, self.concurrency, self.link = profile, concurrency, link
        self.launch = profile.launch(concurrency)
        half_s, exchange_s = self.launch.segment_s / 2, profile.table(link, "p2p").time_s(0)
        default = Timing(concurrency=concurrency, forward_s=half_s, backward_s=half_s, saved_bytes=0)
        self.segment = profile.timing(SEGMENT, concurrency) or default
        default = Timing(
            concurrency=concurrency, forward_s=0.1 * exchange_s, backward_s=0.1 * exchange_s, saved_bytes=0
        )
        self.message = profile.timing(MESSAGE, concurrency) or default
        self.copies: dict[str, SizeTable | None] = {kind: size_table(profile, kind, concurrency) for kind in COPY_KINDS}
        self.optimizer: OptimizerCost | None = optimizer_cost(profile, optimizer, concurrency)
        self.known: dict[int, tuple[Segment, float, float, bool]] = {}

    def segment_s(self, program: Program, segment_id: int, direction: Direction) -> float:
        _, forward_s, backward_s, _ = self._segment(program, program.segments[segment_id])
        return forward_s if direction == "forward" else backward_s

    def _segment(self, program: Program, segment: Segment) -> tuple[Segment, float, float, bool]:
        """(the segment, which keeps its ``id()`` its own; forward, backward; whether all its operators were timed)."""
        found = self.known.get(id(segment))
        if found is not None:
            return found
        forward_s, backward_s = self.segment.forward_s, self.segment.backward_s
        complete = True
        for key, op in zip(operator_keys(program, segment), segment.operators, strict=True):
            timing = self.profile.timing(key, self.concurrency)
            if timing is not None:
                forward_s, backward_s = forward_s + timing.forward_s, backward_s + timing.backward_s
                continue
            complete = False
            ahead_s, back_s = self.by_rates(program, op, key)
            forward_s, backward_s = forward_s + ahead_s, backward_s + back_s
        self.known[id(segment)] = (segment, forward_s, backward_s, complete)
        return self.known[id(segment)]

    def by_rates(self, program: Program, op: Operator, key: str) -> tuple[float, float]:
        """(forward, backward) seconds of an operator by the measured rates alone."""
        flops, num_bytes = work(program, op)
        forward_s = self._roofline(program, op, backward=False).time_s(flops, num_bytes)
        if not is_active(parse(key)):
            return forward_s, 0.0
        return forward_s, self._roofline(program, op, backward=True).time_s(2 * flops, 2 * num_bytes)

    def timed_share(self, programs: Sequence[Program]) -> float:
        """The part of all operators' time that rests on operators that were timed, 0 to 1."""
        timed_s = rest_s = 0.0
        for program in programs:
            for segment in program.segments.values():
                for key, op in zip(operator_keys(program, segment), segment.operators, strict=True):
                    timing = self.profile.timing(key, self.concurrency)
                    if timing is not None:
                        timed_s += timing.forward_s + timing.backward_s
                    else:
                        rest_s += sum(self.by_rates(program, op, key))
        return timed_s / (timed_s + rest_s) if timed_s + rest_s > 0 else 1.0

    def _roofline(self, program: Program, op: Operator, *, backward: bool) -> Roofline:
        rates = self.profile.rates[0]
        dtype = data_type(program, op)
        dtype = rated(dtype, rates.matmul_flops_per_s, "float32")
        return from_profile(self.profile, kind_of_work(op), dtype, self.concurrency, backward=backward)

    def transfer_s(self, program: Program, peer: int, num_bytes: int) -> Message:
        """Threads hand over references, whatever their size.  Processes are busy with the bytes: the table's time is
        that of sending and receiving at once, so half of it each.
        """
        time_s = self.profile.table(self.link, "p2p").time_s(num_bytes)
        if self.link == "threads" or peer == program.rank:
            return Message(self.message.forward_s, latency_s=time_s, receive_s=self.message.backward_s)
        return Message(send_s=time_s / 2, receive_s=time_s / 2)

    def all_reduce_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        """Threads exchange references and each adds the n - 1 others; processes by the table, with a ring's bytes."""
        others = len(group) - 1
        if self.link == "threads":
            return others * (self.exchange_s + self.copy_s(program, "add", num_bytes, "backward"))
        return from_table("all_reduce", len(group), num_bytes, self.profile.table(self.link, "all_reduce"))

    def combine_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        """Threads share all gradients by reference, each adds up its part of the elements, and they meet once more;
        processes copy them into buckets and sum these."""
        others = len(group) - 1
        if self.link == "threads":
            add_s = self.copy_s(program, "add", num_bytes // len(group), "backward")
            return others * (2 * self.exchange_s + add_s)
        return self.copy_s(program, "copy", num_bytes, "backward") + self.all_reduce_s(program, group, num_bytes)

    @property
    def exchange_s(self) -> float:
        """What an engine is busy with when it hands over a reference and gets one."""
        return self.message.forward_s + self.message.backward_s

    def copy_s(self, program: Program, kind: CopyKind, num_bytes: int, direction: Direction) -> float:
        table = self.copies[kind]
        if table is not None:
            return table.time_s(num_bytes, fresh=direction == "forward")
        moved = {"copy": 2, "add": 3, "zero": 1}[kind] * num_bytes
        return self.launch.forward_s + moved / self.profile.rate("stream", "float32", self.concurrency)

    def optimize_s(self, program: Program) -> float:
        sizes = trained_bytes(program)
        if self.optimizer is not None:
            return self.optimizer.time_s(len(sizes), sum(sizes))
        rate = self.profile.rate("stream", "float32", self.concurrency)
        return len(sizes) * 3 * self.launch.forward_s + 5 * sum(sizes) / rate

    def calibrated(self, programs: Sequence[Program]) -> bool:
        timed = all(self._segment(program, s)[3] for program in programs for s in program.segments.values())
        tables = all(table is not None for table in self.copies.values())
        training = any(program.training for program in programs)
        return timed and tables and (self.optimizer is not None or not training)


class AnalyticCosts:
    """From a Cluster's data sheets: rooflines for operators, alpha-beta for links.  Never calibrated.

    Engine e of the Programs is engine e of the cluster.  ``num_sharing`` and shared bandwidth are the cluster's.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rooflines: dict[tuple[int, str], Roofline] = {}  # by the Engine's id, which the cluster keeps its own
        self.known: dict[tuple[int, int], tuple[Segment, float, float]] = {}

    def roofline(self, rank: int, dtype: str) -> Roofline:
        """The roofline of an engine, its share of the bandwidth that its neighbours use too taken off.

        Raises UnknownName for a floating type for which the engine has no rate.
        """
        engine, count = self.cluster.engines[rank], self.cluster.num_engines
        if (id(engine), dtype) not in self.rooflines:
            peaks = engine.peak_flops_per_s
            shares = ((s.bandwidth_bytes_per_s, min(s.size, count)) for s in self.cluster.shared)
            bandwidth, num_sharing = min(shares, key=lambda share: share[0] / share[1], default=(None, 1))
            self.rooflines[id(engine), dtype] = from_engine(
                engine, rated(dtype, peaks, next(iter(peaks))), num_sharing=num_sharing, shared_bandwidth=bandwidth
            )
        return self.rooflines[id(engine), dtype]

    def moved_s(self, program: Program, num_bytes: float) -> float:
        """One pass over that many bytes, without arithmetic to speak of: any data type's roofline."""
        dtype = next(iter(self.cluster.engines[program.rank].peak_flops_per_s))
        return self.roofline(program.rank, dtype).time_s(0.0, num_bytes)

    def segment_s(self, program: Program, segment_id: int, direction: Direction) -> float:
        segment, engine = program.segments[segment_id], self.cluster.engines[program.rank]
        if (id(segment), id(engine)) not in self.known:
            self.known[id(segment), id(engine)] = (segment, *self._segment(program, segment))
        _, forward_s, backward_s = self.known[id(segment), id(engine)]
        return forward_s if direction == "forward" else backward_s

    def _segment(self, program: Program, segment: Segment) -> tuple[float, float]:
        forward_s = backward_s = 0.0
        for key, op in zip(operator_keys(program, segment), segment.operators, strict=True):
            flops, num_bytes = work(program, op)
            roofline = self.roofline(program.rank, data_type(program, op))
            forward_s += roofline.time_s(flops, num_bytes)
            if ACTIVE in parse(key)["outputs"]:
                backward_s += roofline.time_s(2 * flops, 2 * num_bytes)
        return forward_s, backward_s

    def transfer_s(self, program: Program, peer: int, num_bytes: int) -> Message:
        if peer == program.rank:
            return Message()
        link = self.cluster.link(program.rank, peer)
        return Message(wire_s=num_bytes / link.bandwidth_bytes_per_s, latency_s=link.latency_s)

    def all_reduce_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        return over_cluster_s("all_reduce", self.cluster, group, num_bytes)

    def combine_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        copy_s = self.copy_s(program, "copy", num_bytes, "backward")
        return copy_s + self.all_reduce_s(program, group, num_bytes)

    def copy_s(self, program: Program, kind: CopyKind, num_bytes: int, direction: Direction) -> float:
        return self.moved_s(program, {"copy": 2, "add": 3, "zero": 1}[kind] * num_bytes)

    def optimize_s(self, program: Program) -> float:
        """One fused pass that reads and writes weight and state and reads the gradient: five times their bytes."""
        return self.moved_s(program, 5.0 * sum(trained_bytes(program)))

    def calibrated(self, programs: Sequence[Program]) -> bool:
        return False


def trained_bytes(program: Program) -> tuple[int, ...]:
    """Bytes of each tile that the optimizer changes on this engine, a parameter once."""
    tiles = {name: program.tiles[tile] for tile, name in program.parameters.items() if program.tiles[tile].active}
    return tuple(tile.num_bytes for tile in tiles.values())


def work(program: Program, op: Operator) -> tuple[float, float]:
    """FLOPs and bytes to and from memory of a local operator, forward."""
    if op.base in VIEWS:
        return 0.0, 0.0
    boxes = [(_box(program, name), _item_bytes(program, name)) for name in (*op.inputs, *(o for o in op.outputs if o))]
    ins = [box for box, _ in boxes[: len(op.inputs)]]
    outs = [_box(program, name) if name is not None else () for name in op.outputs]
    flops = family_of(op).flops(op, ins, [box for box, name in zip(outs, op.outputs, strict=True) if name is not None])
    return flops, float(sum(volume(box) * item for box, item in boxes))


def _box(program: Program, name: str) -> Box:
    """The box of a tile; a tensor without a tile counts as one element of no bytes: its traffic is left out."""
    tile = program.tiles.get(int(name[1:])) if name[1:].isdigit() else None
    return full(tile.local_shape) if tile is not None else ()


def _item_bytes(program: Program, name: str) -> int:
    tile = program.tiles.get(int(name[1:])) if name[1:].isdigit() else None
    return ITEM_BYTES[tile.dtype] if tile is not None else 0


def data_type(program: Program, op: Operator) -> str:
    """The data type in which an operator computes: that of its first tile."""
    names = [name for name in (*op.inputs, *op.outputs) if name is not None and name[1:].isdigit()]
    return next((program.tiles[int(name[1:])].dtype for name in names), "float32")


def rated(dtype: str, rates: Container[str], other: str) -> str:
    """The data type whose rate counts for an operator: its own.  Integers and truth values without one take ``other``,
    since next to nothing is computed in them; a floating type without one is for the caller to refuse."""
    return dtype if dtype in rates or "float" in dtype else other


def kind_of_work(op: Operator) -> str:
    """Which measured rate is nearest: "conv", "depthwise" or "matmul"."""
    if op.base.startswith("conv"):
        return "depthwise" if op.args.get("groups", 1) > 1 else "conv"
    return "matmul"
