"""Flow: the tiled graph of all stages, before it is cut into one Program per engine.

Slots are values in a layout at a stage; items are placed operators, slices and moves between slots, each with a level:
the number of moves behind it.  Everything of one stage and level is one segment.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from trine.graph.graph import Tensor
from trine.graph.part import even, span, union
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, State, is_cut, narrows
from trine.plan.plan import Plan
from trine.program.moves import steps
from trine.program.place import Placed, Placement
from trine.program.program import TransferKind


@dataclass(frozen=True)
class Slot:
    """A value in a layout at a stage."""

    id: int
    tensor: str
    stage: int
    layout: Layout
    level: int
    per_step: bool


@dataclass(frozen=True)
class Slice:
    """A slot made from another without communication."""

    source: int
    target: int


@dataclass(frozen=True)
class Move:
    """A slot made from another by communication along one axis, or between stages (axis None)."""

    id: int
    kind: TransferKind
    axis: int | None
    source: int
    target: int


@dataclass(frozen=True)
class Work:
    """A placed operator with its slots."""

    placed: Placed
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]


Item = Work | Slice
Seeds = Literal["loss", "user"]  # kind of the outputs at which gradients begin


class Flow:
    """Built once from a placement; ids of slots and moves start at ``first_id`` so that variants do not collide.

    For leaves and seeds see :func:`active_tensors`.
    """

    def __init__(
        self, placement: Placement, rest: dict[str, tuple[int, Layout]], first_id: int = 0,
        leaves: Collection[str] | None = None, seeds: Seeds = "loss",
    ) -> None:  # fmt: skip
        self.placement, self.plan, self.graph = placement, placement.plan, placement.graph
        self.tensors = placement.tensors
        self.rest = rest
        self.next_id = first_id
        self.slots: dict[int, Slot] = {}
        self.at: dict[tuple[str, int], list[int]] = {}
        self.origin: dict[str, int] = {}  # activation → the slot in which it is made
        self.items: list[tuple[int, int, Item]] = []  # (stage, level, item)
        self.moves: list[Move] = []
        self.fed: dict[int, str] = {}
        self.active = active_tensors(placement, leaves, seeds)
        self.results: dict[int, tuple[str, str]] = {}  # slot → (kind of output, target)
        for placed in placement.placed:
            self.add(placed)
        self.finish()

    def new_slot(self, tensor: str, stage: int, layout: Layout, level: int, per_step: bool = False) -> int:
        slot = Slot(self.next_id, tensor, stage, layout, level, per_step)
        self.next_id += 1
        self.slots[slot.id] = slot
        self.at.setdefault((tensor, stage), []).append(slot.id)
        return slot.id

    def add(self, placed: Placed) -> None:
        """Provide the inputs of an operator and make its outputs; partial sums are settled at once."""
        names = placed.op.inputs
        inputs = [self.provide(name, placed.stage, need) for name, need in zip(names, placed.needs, strict=True)]
        level = max((self.slots[i].level for i in inputs), default=0)
        outputs = [
            None if name is None else self.new_slot(name, placed.stage, layout, level)
            for name, layout in zip(placed.op.outputs, placed.layouts, strict=True)
        ]
        self.items.append((placed.stage, level, Work(placed, tuple(inputs), tuple(outputs))))
        for name, slot in zip(placed.op.outputs, outputs, strict=True):
            if name is not None and slot is not None:
                settled = self.placement.made[name, placed.stage]
                if settled != self.slots[slot].layout:
                    known = self.at[name, placed.stage]
                    known.remove(slot)
                    known.insert(0, self.path(slot, placed.stage, settled))
                    known[:] = [s for s in dict.fromkeys(known) if PARTIAL not in self.slots[s].layout]
                self.origin.setdefault(name, self.at[name, placed.stage][0])

    def source(self, tensor: str, stage: int) -> int:
        """The slot a value comes from, as seen from a stage; feeds are made where they are wanted."""
        kind = self.tensors[tensor].kind
        if kind == "activation":
            return next((s for s in self.at.get((tensor, stage), ()) if self.is_complete(s)), self.origin[tensor])
        home, layout = self.rest[tensor]
        if kind in ("input", "constant"):
            home = stage
        if not self.at.get((tensor, home)):
            slot = self.new_slot(tensor, home, layout, 0, per_step=kind in ("parameter", "constant"))
            self.fed[slot] = tensor
        return self.at[tensor, home][0]

    def is_complete(self, slot: int) -> bool:
        """Whether the engines of its stage have all of the tensor together."""
        shape = self.tensors[self.slots[slot].tensor].shape
        splits = [state for state in self.slots[slot].layout if isinstance(state, Split)]
        return all(union(*state.parts) == span(0, shape[state.dim]) for state in splits)

    def provide(self, tensor: str, stage: int, want: Layout) -> int:
        """A slot of the tensor at the stage in the wanted layout: an existing one, a slice of one, or a new path."""
        source = self.source(tensor, stage)
        here = self.at.get((tensor, stage), [])
        for slot in here:
            if self.slots[slot].layout == want:
                return slot
        for slot in here:
            if all(narrows(a, b) for a, b in zip(self.slots[slot].layout, want, strict=True)):
                return self.path(slot, stage, want)
        return self.path(source, stage, want)

    def path(self, slot: int, stage: int, want: Layout) -> int:
        """Slices and moves from a slot to a layout at a stage."""
        start = self.slots[slot]
        for kind, axis, layout in steps(start.layout, want, start.stage, stage, slice_first=not start.per_step):
            now = self.slots[slot]
            at = axis if kind == "hand_over" else now.stage
            known = [s for s in self.at.get((now.tensor, at), []) if self.slots[s].layout == layout]
            if known:
                slot = known[0]
                continue
            if kind == "slice":
                new = self.new_slot(now.tensor, at, layout, now.level)
                self.items.append((at, now.level, Slice(slot, new)))
            else:
                level = 0 if now.per_step else now.level + 1
                new = self.new_slot(now.tensor, at, layout, level, per_step=now.per_step)
                number = None if kind == "hand_over" else axis
                self.moves.append(Move(len(self.moves), kind, number, slot, new))  # type: ignore[arg-type]
            slot = new
        return slot

    def finish(self) -> None:
        """Provide what leaves the graph: the loss whole, buffers as they rest, results as they are."""
        whole: Layout = (WHOLE,) * len(self.plan.axes)
        for output in self.graph.outputs:
            stage = self.slots[self.source(output.tensor, 0)].stage
            if output.kind == "loss":
                slot = self.provide(output.tensor, stage, whole)
            elif output.kind == "buffer":
                self.source(output.target, stage)  # it rests even if no operator reads it
                slot = self.provide(output.tensor, *self.rest[output.target])
            else:
                slot = self.source(output.tensor, stage)
            target = output.target if output.kind != "loss" else "loss"
            self.results.setdefault(slot, (output.kind, target))


def active_tensors(
    placement: Placement, leaves: Collection[str] | None = None, seeds: Seeds = "loss"
) -> frozenset[str]:
    """Tensors that a gradient flows through: they depend on a leaf, and an output of the kind ``seeds`` on them.

    leaves: parameters and inputs whose gradients are wanted; None: all parameters.
    """
    tensors, graph = placement.tensors, placement.graph
    wanted = {o.tensor for o in graph.outputs if o.kind == seeds and tensors[o.tensor].is_floating}
    if leaves is None:
        leaves = {t.name for t in tensors.values() if t.kind == "parameter"}
    moved = {name for name in leaves if tensors[name].is_floating}
    for placed in placement.placed:
        if placed.op.base != "detach" and not moved.isdisjoint(placed.op.inputs):
            moved.update(n for n in placed.op.outputs if n is not None and tensors[n].is_floating)
    for placed in reversed(placement.placed):
        if placed.op.base != "detach" and not wanted.isdisjoint(n for n in placed.op.outputs if n is not None):
            wanted.update(placed.op.inputs)
    return frozenset(moved & wanted)


def resting(placement: Placement) -> dict[str, tuple[int, Layout]]:
    """Where every fed value rests: its home stage and layout.

    A parameter or buffer whose readers all want the same cut rests cut; else whole, but for ``Plan.zero``.  Inputs rest
    as they are cut.  A
    buffer that nobody reads rests where its new value is made.
    """
    plan, graph = placement.plan, placement.graph
    wants: dict[str, list[tuple[int, Layout]]] = {}
    for placed in placement.placed:
        for name, need in zip(placed.op.inputs, placed.needs, strict=True):
            wants.setdefault(name, []).append((placed.stage, need))
    makers = {o.target: min((s for n, s in placement.made if n == o.tensor), default=0) for o in graph.outputs}
    result: dict[str, tuple[int, Layout]] = {}
    for tensor in graph.tensors.values():
        if tensor.kind == "activation":
            continue
        seen = wants.get(tensor.name, [])
        home = min((stage for stage, _ in seen), default=makers.get(tensor.name, 0))
        if tensor.kind == "input":
            result[tensor.name] = (home, placement.feeds[tensor.name])
        else:
            layout = tuple(_rest_state(tensor, a, [need[a] for _, need in seen]) for a in range(len(plan.axes)))
            if plan.zero and tensor.kind == "parameter":
                layout = _sharded(tensor, layout, plan)
            result[tensor.name] = (home, layout)
    return result


def _sharded(tensor: Tensor, layout: Layout, plan: Plan) -> Layout:
    """A parameter's layout cut over the batch axis too, along its longest dimension that nothing else cuts; as it is
    where there is none of that length."""
    axis = next(number for number, each in enumerate(plan.axes) if each.cut == "batch")
    taken = {state.dim for state in layout if isinstance(state, Split)}
    free = [dim for dim, length in enumerate(tensor.shape) if dim not in taken and length >= plan.axes[axis].size]
    if not free or layout[axis] != WHOLE:
        return layout
    dim = max(free, key=lambda d: (tensor.shape[d], -d))
    cut = Split(dim, even(tensor.shape[dim], (1.0,) * plan.axes[axis].size))
    return (*layout[:axis], cut, *layout[axis + 1 :])


def _rest_state(tensor: Tensor, axis: int, states: list[State]) -> State:
    if not states or any(state != states[0] for state in states) or tensor.kind == "constant":
        return WHOLE
    state = states[0]
    return state if state != WHOLE and is_cut(state, tensor.shape[state.dim]) else WHOLE  # type: ignore[union-attr]
