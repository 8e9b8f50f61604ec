"""Outline: what one way to cut tensors costs, operator by operator, for any number of rows.

It is read off the flow of a plan of one stage, with two coordinates along the batch and the tiles in question, at the
engine in the middle of the tiles.  What is cut along the batch counts by the row, everything else is fixed; so one
outline serves every degree of data parallelism, every micro-batch and every division into stages, and a search looks at
thousands of plans without compiling one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trine.cost.collectives import Collective
from trine.cost.keys import VIEWS
from trine.cost.segments import kind_of_work
from trine.graph.graph import ITEM_BYTES
from trine.graph.part import Box, size, volume
from trine.operators.family import family_of
from trine.plan.layout import Split, box
from trine.plan.plan import Axis
from trine.program.compile import Compiled
from trine.program.flow import Flow, Slice, Work
from trine.program.moves import shares

Array = np.ndarray[Any, Any]
OPERATIONS: dict[str, Collective] = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "exchange": "p2p",
}  # fmt: skip


@dataclass(frozen=True)
class Amount:
    """Something that grows with the rows: ``per_row`` · rows + ``fixed``, a number for each unit."""

    per_row: Array
    fixed: Array

    def at(self, rows: float) -> Array:
        """For so many rows."""
        result: Array = self.per_row * rows + self.fixed
        return result


@dataclass(frozen=True)
class Talk:
    """Communication along an axis before a unit.  received: bytes as ``cost.collectives`` counts them; made: bytes of
    the tile that is put together; each by the row and fixed.  active: its transpose comes in the backward pass."""

    unit: int
    over_data: bool
    operation: Collective
    received: tuple[float, float]
    made: tuple[float, float]
    active: bool


@dataclass(frozen=True)
class Outline:
    """Units are placed operators in order.

    axis: that of the tiles, None if there are none.  starts: the operator at which a stage may begin with the unit, ""
    where none may.  classes, class_of: (kind of work, data type) by unit.  flops, traffic (bytes to and from memory),
    kept (bytes that autograd keeps) of the unit.  crossing: bytes that are handed over if a stage begins with the unit.
    resting, trained: bytes of parameters, and of those that learn, which the unit is the first to read.
    """

    axis: Axis | None
    starts: tuple[str, ...]
    classes: tuple[tuple[str, str], ...]
    class_of: Array
    active: Array
    flops: Amount
    traffic: Amount
    kept: Amount
    crossing: Amount
    resting: Array
    trained: Array
    talks: tuple[Talk, ...]
    training: bool

    @property
    def num_units(self) -> int:
        return len(self.starts)

    @property
    def num_tiles(self) -> int:
        """Engines among which tensors are cut."""
        return self.axis.size if self.axis is not None else 1


def outline(compiled: Compiled) -> Outline:
    """Of a plan with one stage and one micro-batch, whose first axis, if any cuts the batch, has two coordinates."""
    return _Reader(compiled).outline()


class _Reader:
    """Walks over a flow once."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled, self.plan = compiled, compiled.plan
        self.flow: Flow = next(iter(compiled.flows.values()))
        self.coords = tuple(0 if axis.cut == "batch" else axis.size // 2 for axis in self.plan.axes)
        self.batch_axis = next((n for n, axis in enumerate(self.plan.axes) if axis.cut == "batch"), None)
        self.works = [item for _, _, item in self.flow.items if isinstance(item, Work)]
        self.rows = self._rows()
        self.boxes: dict[int, Box] = {}

    def _rows(self) -> float:
        """Rows of the coordinate that is looked at."""
        if self.batch_axis is not None:
            for layout in self.flow.placement.feeds.values():
                state = layout[self.batch_axis]
                if isinstance(state, Split):
                    return float(size(state.parts[0]))
        return 1.0

    def box(self, slot: int) -> Box:
        if slot not in self.boxes:
            known = self.flow.slots[slot]
            self.boxes[slot] = box(known.layout, self.flow.tensors[known.tensor].shape, self.coords)
        return self.boxes[slot]

    def num_bytes(self, slot: int) -> float:
        return float(volume(self.box(slot)) * ITEM_BYTES[self.flow.tensors[self.flow.slots[slot].tensor].dtype])

    def by_row(self, slot: int) -> bool:
        """Whether a slot has rows of the batch."""
        return self.batch_axis is not None and isinstance(self.flow.slots[slot].layout[self.batch_axis], Split)

    def split(self, amounts: Mapping[int, float]) -> tuple[float, float]:
        """Sums of what slots have: by the row, and fixed."""
        growing = sum(amount for slot, amount in amounts.items() if self.by_row(slot))
        return growing / self.rows, sum(amounts.values()) - growing

    def outline(self) -> Outline:
        names = {op.name for op in self.flow.graph.operators}
        classes: dict[tuple[str, str], int] = {}
        count = len(self.works)
        columns = {name: np.zeros((count, 2)) for name in ("flops", "traffic", "kept")}
        class_of, active = np.zeros(count, np.int64), np.zeros(count, bool)
        roots: dict[int, int] = {}
        seen: set[int] = set()
        for number, work in enumerate(self.works):
            op = work.placed.op
            outputs = [slot for slot in work.outputs if slot is not None]
            first = next(iter((*work.inputs, *outputs)), None)
            dtype = self.flow.tensors[self.flow.slots[first].tensor].dtype if first is not None else "float32"
            class_of[number] = classes.setdefault((kind_of_work(op), dtype), len(classes))
            active[number] = any(self.flow.slots[slot].tensor in self.flow.active for slot in outputs)
            if op.base in VIEWS:
                roots |= {slot: roots.get(work.inputs[0], work.inputs[0]) for slot in outputs if work.inputs}
            else:
                columns["traffic"][number] = self.split({s: self.num_bytes(s) for s in (*work.inputs, *outputs)})
                flops = family_of(op).flops(op, [self.box(s) for s in work.inputs], [self.box(s) for s in outputs])
                grows = any(self.by_row(slot) for slot in (*work.inputs, *outputs))
                columns["flops"][number] = (flops / self.rows, 0.0) if grows else (0.0, flops)
            if active[number]:
                columns["kept"][number] = self.kept(work, roots, seen)
        resting, trained = self.parameters()
        return Outline(
            axis=next((axis for axis in self.plan.axes if axis.cut != "batch"), None),
            starts=tuple(work.placed.op.name if work.placed.op.name in names else "" for work in self.works),
            classes=tuple(classes), class_of=class_of, active=active, flops=_amount(columns["flops"]),
            traffic=_amount(columns["traffic"]), kept=_amount(columns["kept"]), crossing=self.crossing(),
            resting=resting, trained=trained, talks=tuple(self.talks()), training=self.compiled.training,
        )  # fmt: skip

    def kept(self, work: Work, roots: dict[int, int], seen: set[int]) -> tuple[float, float]:
        """What autograd keeps of an operator that nothing before it kept."""
        op = work.placed.op
        slots = dict(zip(op.inputs, work.inputs, strict=True))
        slots |= {n: s for n, s in zip(op.outputs, work.outputs, strict=True) if n is not None and s is not None}
        saved = {roots.get(slots[name], slots[name]) for name in family_of(op).saved(op) if name in slots} - seen
        seen |= saved
        kinds = {slot: self.flow.tensors[self.flow.slots[slot].tensor].kind for slot in saved}
        per_row, fixed = self.split({slot: self.num_bytes(slot) for slot in saved if kinds[slot] == "activation"})
        more = family_of(op).kept_bytes(op, lambda name: volume(self.box(slots[name])) if name in slots else 0)
        return per_row + more / self.rows, fixed

    def readers(self) -> dict[int, int]:
        """Slot → the first unit that reads it, over slices and moves."""
        result: dict[int, int] = {}
        number = len(self.works)
        for _, _, item in reversed(self.flow.items):
            if isinstance(item, Work):
                number -= 1
                result.update(dict.fromkeys(item.inputs, number))
            elif isinstance(item, Slice) and item.target in result:
                result[item.source] = min(result.get(item.source, number), result[item.target])
        for move in reversed(self.flow.moves):
            if move.target in result:
                result[move.source] = min(result.get(move.source, len(self.works)), result[move.target])
        return result

    def parameters(self) -> tuple[Array, Array]:
        """Bytes of parameters by the unit that reads them first: all, and those that learn."""
        resting, trained = np.zeros(len(self.works)), np.zeros(len(self.works))
        readers = self.readers()
        for slot, name in self.flow.fed.items():
            if self.flow.tensors[name].kind == "parameter" and slot in readers:
                resting[readers[slot]] += self.num_bytes(slot)
                trained[readers[slot]] += self.num_bytes(slot) * (name in self.flow.active)
        return resting, trained

    def crossing(self) -> Amount:
        """Activations that are made before a unit and read by it or later."""
        change = np.zeros((len(self.works) + 1, 2))
        made = {slot: number for number, work in enumerate(self.works) for slot in work.outputs if slot is not None}
        last: dict[str, int] = {}
        for number, work in enumerate(self.works):
            last.update(dict.fromkeys(work.placed.op.inputs, number))
        for slot, number in made.items():
            end = last.get(self.flow.slots[slot].tensor, number)
            if end > number:
                amount = np.array(self.split({slot: self.num_bytes(slot)}))
                change[number + 1] += amount
                change[end + 1 if end + 1 <= len(self.works) else end] -= amount
        return _amount(np.cumsum(change, axis=0)[: len(self.works)])

    def talks(self) -> list[Talk]:
        """What is exchanged along the axes, for each micro-batch."""
        result, readers = [], self.readers()
        for move in self.flow.moves:
            source, target = self.flow.slots[move.source], self.flow.slots[move.target]
            if move.axis is None or source.per_step:
                continue
            grows = self.by_row(move.source)
            operation = OPERATIONS[move.kind]
            at = move.target if operation == "all_gather" else move.source
            received = self.num_bytes(at)
            if operation == "p2p":
                shape, here = self.flow.tensors[source.tensor].shape, self.coords[move.axis]
                gets = shares(self.plan, shape, source.layout, target.layout, move.axis, self.coords)[here]
                item = ITEM_BYTES[self.flow.tensors[source.tensor].dtype]
                received = float(sum(volume(where) * item for other, where in gets if other != here))
            made = self.num_bytes(move.target)
            over_data = move.axis == self.batch_axis
            result.append(
                Talk(
                    readers.get(move.target, len(self.works) - 1), over_data, operation,
                    (received / self.rows, 0.0) if grows and not over_data else (0.0, received),
                    (made / self.rows, 0.0) if grows and not over_data else (0.0, made),
                    source.tensor in self.flow.active,
                )
            )  # fmt: skip
        return result


def between(low: Outline, high: Outline, axis: Axis) -> Outline | None:
    """The outline of a cut into another number of parts than two that are known, each amount as a + b / parts through
    both; None where the two are not of the same structure."""
    same = low.starts == high.starts and low.classes == high.classes and len(low.talks) == len(high.talks)
    shapes = [[(t.unit, t.over_data, t.operation, t.active) for t in each.talks] for each in (low, high)]
    if not same or shapes[0] != shapes[1] or low.num_tiles == high.num_tiles:
        return None
    share = (1 / axis.size - 1 / high.num_tiles) / (1 / low.num_tiles - 1 / high.num_tiles)  # of ``low``

    def mixed(a: Array, b: Array) -> Array:
        result: Array = np.maximum(share * a + (1 - share) * b, 0.0)
        return result

    def pair(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        one, two = (max(share * x + (1 - share) * y, 0.0) for x, y in zip(a, b, strict=True))
        return one, two

    def amount(a: Amount, b: Amount) -> Amount:
        return Amount(mixed(a.per_row, b.per_row), mixed(a.fixed, b.fixed))

    talks = tuple(
        replace(a, received=pair(a.received, b.received), made=pair(a.made, b.made))
        for a, b in zip(low.talks, high.talks, strict=True)
    )
    return replace(
        low, axis=axis, flops=amount(low.flops, high.flops), traffic=amount(low.traffic, high.traffic),
        kept=amount(low.kept, high.kept), crossing=amount(low.crossing, high.crossing),
        resting=mixed(low.resting, high.resting), trained=mixed(low.trained, high.trained), talks=talks,
    )  # fmt: skip


def _amount(columns: Array) -> Amount:
    return Amount(columns[:, 0], columns[:, 1])
