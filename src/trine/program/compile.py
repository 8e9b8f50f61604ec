"""Compile: Graph + Plan → one Program per engine.

A batch that streams in micro-batches of unequal size has one graph for each size (*variant*); their tiles have
different numbers and share parameters by name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from trine.graph.graph import Graph, Operator, Tensor
from trine.graph.part import Box, volume, within
from trine.operators.family import Local, Rule, family_of
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, box
from trine.plan.plan import Plan
from trine.program.border import border
from trine.program.flow import Flow, Move, Seeds, Slice, Slot, Work, resting
from trine.program.frees import with_frees
from trine.program.fuse import fused
from trine.program.halos import placement_of
from trine.program.moves import Shares, shares, turned
from trine.program.names import renamed
from trine.program.place import Placed
from trine.program.program import Combine, Instruction, Piece, Program, Segment, Tile, Transfer, goes_back
from trine.program.schedule import order

Event = tuple[int, int, int]  # level, what of it, number of the transfer or segment
MOVE, BORDER, SEND, SEGMENT = range(4)  # in this order inside a level
COMPUTING = (BORDER, SEGMENT)


def batches(batch: int, micro_batches: int) -> tuple[tuple[int, int], ...]:
    """Rows of each micro-batch: as even as can be, larger ones first."""
    base, extra = divmod(batch, micro_batches)
    result, low = [], 0
    for m in range(micro_batches):
        high = low + base + (m < extra)
        result.append((low, high))
        low = high
    return tuple(result)


@dataclass(frozen=True)
class PieceOf:
    """What one engine runs for its piece of an operator, over tiles that are named after their slots (``t12``)."""

    work: Work
    coords: tuple[int, ...]
    in_boxes: tuple[Box, ...]
    out_boxes: tuple[Box, ...]
    operators: tuple[Operator, ...]


class Compiled:
    """The flows of a plan; ``program(rank)`` makes one engine's Program.

    graph_of: rows of a micro-batch → its graph (captures of the same model at other batch sizes).
    leaves: parameters and inputs whose gradients are wanted; None: all parameters.
    seeds: gradients begin at the ``loss`` of a training graph, or at the results for the ``user``, in either mode,
        where the runtime is given them.
    """

    def __init__(
        self, graph_of: Callable[[int], Graph], plan: Plan, batch: int, *, leaves: Collection[str] | None = None,
        seeds: Seeds = "loss",
    ) -> None:  # fmt: skip
        self.plan, self.rows, self.seeds = plan, batches(batch, plan.micro_batches), seeds
        self.flows: dict[int, Flow] = {}
        rest: dict[str, tuple[int, Layout]] | None = None
        first = 0
        for low, high in self.rows:
            if high - low not in self.flows:
                placement = placement_of(graph_of(high - low), plan)
                fresh = resting(placement)
                inputs = {name: fresh[name] for name in placement.feeds if placement.tensors[name].kind == "input"}
                rest = {**(rest or fresh), **inputs}
                flow = Flow(placement, rest, first, leaves, seeds)
                self.flows[high - low] = flow
                first = flow.next_id
        assert rest is not None
        self.rest, self.next_id = rest, first
        self.known_shares: dict[tuple[int, tuple[int, ...]], tuple[Shares, Shares]] = {}
        flow = next(iter(self.flows.values()))
        self.graph, self.active = flow.graph, flow.active

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        if self.seeds == "user":
            return bool(self.active)
        return self.graph.loss is not None and self.graph.training

    def program(self, rank: int) -> Program:
        """The Program of one engine."""
        return _Engine(self, *self.plan.place(rank)).program()

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor of the largest micro-batch, those of rewritten operators included."""
        return next(iter(self.flows.values())).tensors

    def pieces(self) -> Iterator[PieceOf]:
        """Every piece of every operator of the largest micro-batch."""
        flow = next(iter(self.flows.values()))
        for stage in range(self.plan.num_stages):
            for coords in self.plan.coordinates():
                yield from _Engine(self, stage, coords).pieces(flow)

    def shares(self, flow: Flow, move: Move, axis: int, coords: tuple[int, ...]) -> tuple[Shares, Shares]:
        """What the engines of a group give and get in a move along an axis: computed once for all of them."""
        key = (move.target, coords[:axis] + coords[axis + 1 :])
        if key not in self.known_shares:
            source, target = flow.slots[move.source], flow.slots[move.target]
            shape = flow.tensors[source.tensor].shape
            gets = shares(self.plan, shape, source.layout, target.layout, axis, coords)
            self.known_shares[key] = turned(gets), gets
        return self.known_shares[key]

    def programs(self) -> tuple[Program, ...]:
        """All Programs, in order of rank."""
        return tuple(self.program(rank) for rank in range(self.plan.num_engines))


class _Engine:
    """Makes the Program of the engine at a stage and coordinates."""

    def __init__(self, compiled: Compiled, stage: int, coords: tuple[int, ...]) -> None:
        self.compiled, self.plan, self.stage, self.coords = compiled, compiled.plan, stage, coords
        self.rank = self.plan.rank(stage, coords)
        self.tiles: dict[int, Tile] = {}
        self.segments: dict[int, Segment] = {}
        self.transfers: dict[int, Transfer] = {}
        self.events: dict[int, list[Event]] = {}  # rows → events
        self.next_id = compiled.next_id
        self.before: list[int] = []
        self.training = compiled.training

    def program(self) -> Program:
        for rows, flow in self.compiled.flows.items():
            self.variant(rows, flow)
        flows = self.compiled.flows.values()
        fed = {slot: name for f in flows for slot, name in f.fed.items() if slot in self.tiles}
        kinds = self.compiled.graph.tensors
        results = {slot: r for f in flows for slot, r in f.results.items() if slot in self.tiles}
        return Program(
            rank=self.rank, stage=self.stage, coords=self.coords, num_engines=self.plan.num_engines,
            training=self.training, tiles=self.tiles, segments=self.segments, transfers=self.transfers,
            combines=dict(enumerate(self.combines())),
            parameters={s: n for s, n in fed.items() if kinds[n].kind == "parameter"},
            feeds={s: n for s, n in fed.items() if kinds[n].kind == "input"},
            stored={s: n for s, n in fed.items() if kinds[n].kind in ("buffer", "constant")},
            updates={s: target for s, (kind, target) in results.items() if kind == "buffer"},
            losses=tuple(s for s, (kind, _) in results.items() if kind == "loss"),
            results={s: target for s, (kind, target) in results.items() if kind == "user"},
            batches=self.compiled.rows, instructions=self.instructions(), seeds=self.seeds(),
        )  # fmt: skip

    def seeds(self) -> tuple[int, ...]:
        """Tiles whose gradient begins here: the gradient of what is whole along an axis is partial, so that one
        coordinate has it."""
        if not self.training:
            return ()
        return tuple(
            slot
            for flow in self.compiled.flows.values()
            for slot, (kind, _) in flow.results.items()
            if kind == self.compiled.seeds and slot in self.tiles and self.tiles[slot].active
            and all(isinstance(s, Split) or c == 0 for s, c in zip(flow.slots[slot].layout, self.coords, strict=True))
        )  # fmt: skip

    def variant(self, rows: int, flow: Flow) -> None:
        """Tiles, segments and transfers of one size of micro-batch."""
        for slot in flow.slots.values():
            if slot.stage == self.stage:
                self.tiles[slot.id] = self.tile(flow, slot)
        groups: dict[int, list[Work | Slice]] = {}
        for stage, level, item in flow.items:
            if stage == self.stage:
                groups.setdefault(level, []).append(item)
        events = self.events.setdefault(rows, [])
        used = self.used_outside(flow, groups)
        for level, items in groups.items():
            number = len(self.segments)
            self.segments[number] = self.segment(flow, items, used)
            events.append((level, SEGMENT, number))
        halos: dict[tuple[int, int], list[int]] = {}
        for move in flow.moves:
            source, target = flow.slots[move.source], flow.slots[move.target]
            if self.stage in (source.stage, target.stage):
                number = len(self.transfers)
                self.transfers[number] = self.transfer(flow, move, source, target)
                if source.per_step:
                    self.before.append(number)
                else:
                    events.append((target.level, MOVE, number))
                if move.kind == "exchange" and move.axis is not None and not source.per_step:
                    halos.setdefault((move.source, move.axis), []).append(number)
        if self.plan.border_first:
            for (made, axis), numbers in halos.items():
                level = flow.slots[made].level
                events += self.border_first(flow, level, groups.get(level, ()), made, axis, numbers)
        events.sort()

    def border_first(
        self, flow: Flow, level: int, items: Sequence[Work | Slice], made: int, axis: int, numbers: Sequence[int]
    ) -> list[Event]:
        """Split what makes a tile so that its border is made and sent first; the events that this adds."""
        state = flow.slots[made].layout[axis]
        assert isinstance(state, Split)
        events: list[Event] = []
        for peer in sorted({piece.peer for n in numbers for piece in self.transfers[n].sends} - {self.rank}):
            whole = [self.transfers[n] for n in numbers]
            found = border(items, self.tiles, made, (axis, state.dim), whole, peer, self.next_id)
            if found is None:
                continue
            self.tiles |= found.tiles
            self.next_id += len(found.tiles)
            events.append((level, BORDER, len(self.segments)))
            self.segments[len(self.segments)] = self.segment(flow, found.items, {found.made})
            for n, transfer in zip(numbers, whole, strict=True):
                self.transfers[n] = replace(transfer, sends=tuple(p for p in transfer.sends if p.peer != peer))
            for transfer in found.sends:
                events.append((level, SEND, len(self.transfers)))
                self.transfers[len(self.transfers)] = transfer
        return events

    def tile(self, flow: Flow, slot: Slot) -> Tile:
        tensor = flow.tensors[slot.tensor]
        return Tile(
            slot.tensor, tensor.shape, box(slot.layout, tensor.shape, self.coords), tensor.dtype,
            slot.tensor in flow.active, slot.per_step,
        )  # fmt: skip

    def used_outside(self, flow: Flow, groups: dict[int, list[Work | Slice]]) -> set[int]:
        """Slots that are read by a move, by another level, or by the outside world."""
        used = {move.source for move in flow.moves} | set(flow.results)
        for level, items in groups.items():
            for item in items:
                reads = item.inputs if isinstance(item, Work) else (item.source,)
                used.update(s for s in reads if flow.slots[s].level != level)
        return used

    def segment(self, flow: Flow, items: Sequence[Work | Slice], used: set[int]) -> Segment:
        operators: list[Operator] = []
        made: dict[int, None] = {}
        read: dict[int, None] = {}
        for item in items:
            inputs = item.inputs if isinstance(item, Work) else (item.source,)
            outputs = [s for s in item.outputs if s is not None] if isinstance(item, Work) else [item.target]
            read.update((s, None) for s in inputs if s not in made)
            made.update((s, None) for s in outputs)
            operators += self.work(flow, item) if isinstance(item, Work) else [self.slice(flow, item)]
        leaving = tuple(s for s in made if s in used)
        whole = fused(operators, (f"t{slot}" for slot in leaving))
        return Segment(tuple(read), leaving, tuple(whole))

    def slice(self, flow: Flow, item: Slice) -> Operator:
        have, want = self.tiles[item.source].box, self.tiles[item.target].box
        where = [[list(p) for p in within(b, a)] for a, b in zip(have, want, strict=True)]
        name = f"t{item.target}"
        return Operator(name, "trine.take", {"input": f"%t{item.source}", "where": where}, (name,))

    def work(self, flow: Flow, item: Work) -> list[Operator]:
        """What this engine runs for its piece of an operator."""
        placed = item.placed
        in_boxes = tuple(self.tiles[s].box for s in item.inputs)
        outs = [None if s is None else self.tiles[s] for s in item.outputs]
        names = tuple(None if s is None else f"t{s}" for s in item.outputs)
        made = [tile for tile in outs if tile is not None]
        empty = all(volume(tile.box) == 0 for tile in made) and bool(made)
        if empty or self.nothing(placed.rules, in_boxes):
            return [
                Operator(f"{n}.nothing", "trine.zeros", {"shape": list(tile.local_shape), "dtype": tile.dtype}, (n,))
                for n, tile in zip(names, outs, strict=True) if tile is not None and n is not None
            ]  # fmt: skip
        op, tensors = renamed(placed.op, item.inputs, names, flow.tensors)
        out_boxes = tuple(() if tile is None else tile.box for tile in outs)
        return list(family_of(op).local(Local(op, tensors, in_boxes, out_boxes, self.dropped(placed))))

    def pieces(self, flow: Flow) -> Iterator[PieceOf]:
        """What this engine runs for each operator of its stage."""
        self.tiles = {slot.id: self.tile(flow, slot) for slot in flow.slots.values() if slot.stage == self.stage}
        for stage, _, item in flow.items:
            if stage == self.stage and isinstance(item, Work):
                ins = tuple(self.tiles[s].box for s in item.inputs)
                outs = tuple(() if s is None else self.tiles[s].box for s in item.outputs)
                yield PieceOf(item, self.coords, ins, outs, tuple(self.work(flow, item)))

    def nothing(self, rules: Sequence[Rule | None], in_boxes: Sequence[Box]) -> bool:
        """Whether a sum over a cut range has no index here."""
        return any(
            rule is not None and bool(rule.reduce) and any(volume(in_boxes[cut.position]) == 0 for cut in rule.inputs)
            for rule in rules
        )

    def dropped(self, placed: Placed) -> frozenset[int]:
        """Inputs that belong to one coordinate of a reducing axis (a bias), where this is not it: the first that has
        any index of the sum."""
        result: set[int] = set()
        for number, (rule, coord) in enumerate(zip(placed.rules, self.coords, strict=True)):
            if rule is None or not rule.reduce or not rule.first_only:
                continue
            states = [placed.needs[cut.position][number] for cut in rule.inputs]
            parts = [state.parts for state in states if isinstance(state, Split)]
            if coord != next((c for c in range(self.plan.axes[number].size) if all(p[c] for p in parts)), 0):
                result.update(rule.first_only)
        return frozenset(result)

    def transfer(self, flow: Flow, move: Move, source: Slot, target: Slot) -> Transfer:
        add = move.axis is not None and source.layout[move.axis] == PARTIAL
        if move.axis is None:
            where = box(source.layout, flow.tensors[source.tensor].shape, self.coords)
            gives = [(self.plan.rank(target.stage, self.coords), where)]
            gets = [(self.plan.rank(source.stage, self.coords), where)]
            group: tuple[int, ...] = (gets[0][0], gives[0][0])
        else:
            group = self.plan.group(self.stage, self.coords, move.axis)
            both = self.compiled.shares(flow, move, move.axis, self.coords)
            gives, gets = ([(group[c], where) for c, where in table[self.coords[move.axis]]] for table in both)
        sends, receives = [], []
        if self.stage == source.stage:
            mine = self.tiles[source.id].box
            sends = [Piece(rank, _positions(where, mine)) for rank, where in gives]
        if self.stage == target.stage:
            mine = self.tiles[target.id].box
            receives = [Piece(rank, _positions(where, mine)) for rank, where in gets]
        return Transfer(
            target.id, move.kind, source.id if self.stage == source.stage else None,
            target.id if self.stage == target.stage else None,
            group, tuple(sends), tuple(receives), add, source.tensor in flow.active,
        )  # fmt: skip

    def combines(self) -> list[Combine]:
        """Gradients that are partial because their parameter rests whole, grouped by the axes that must be summed."""
        if not self.training:
            return []
        flow = next(iter(self.compiled.flows.values()))
        groups: dict[tuple[tuple[int, ...], str], list[str]] = {}
        for name, (home, layout) in self.compiled.rest.items():
            tensor = flow.tensors[name]
            if tensor.kind != "parameter" or home != self.stage or name not in flow.active:
                continue
            axes = tuple(a for a, state in enumerate(layout) if state == WHOLE and self.plan.axes[a].size > 1)
            if axes:
                groups.setdefault((axes, tensor.dtype), []).append(name)
        result = []
        for (axes, _), names in groups.items():
            group = tuple(
                self.plan.rank(self.stage, c)
                for c in self.plan.coordinates()
                if all(c[a] == self.coords[a] for a in range(len(c)) if a not in axes)
            )
            result.append(Combine(group, tuple(names)))
        return result

    def instructions(self) -> tuple[Instruction, ...]:
        """The whole step in order, with what may be freed after each instruction."""
        result = [Instruction("move", number) for number in self.before]
        sizes = [high - low for low, high in self.compiled.rows]
        work = order(
            self.plan.schedule, self.stage, self.plan.num_stages, self.plan.micro_batches, training=self.training
        )
        for kind, m in work:
            events = self.events.get(sizes[m], [])
            if kind == "F":
                result += [Instruction("forward" if k in COMPUTING else "move", number, m) for _, k, number in events]
                result.append(Instruction("update_buffers", 0, m))
            else:
                result.append(Instruction("loss", 0, m))
                for _, k, number in reversed(events):
                    if k in COMPUTING and goes_back(self.segments[number], self.tiles):
                        result.append(Instruction("backward", number, m))
                    elif k not in COMPUTING and self.transfers[number].active:
                        result.append(Instruction("move_back", number, m))
        if self.training:
            result += [Instruction("move_back", n) for n in reversed(self.before) if self.transfers[n].active]
            result += [Instruction("combine", n) for n in range(len(self.combines()))]
            result.append(Instruction("optimize"))
        kept = {slot for flow in self.compiled.flows.values() for slot in flow.results}
        return with_frees(result, self.segments, self.transfers, self.tiles, kept)


def _positions(region: Box, tile: Box) -> Box:
    return tuple(within(p, q) for p, q in zip(region, tile, strict=True))
