"""What a graph is made of: layers, sequential points, and what each cut would tile.

A dimension of a tensor is named by the cut that reaches it: the graph is placed on two engines once for each cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from trine.cost.keys import VIEWS
from trine.graph.graph import Graph, Operator
from trine.graph.part import even
from trine.operators.family import Whole, family_of
from trine.operators.sequential import REWRITES
from trine.plan.build import cut_sizes, operator_flops
from trine.plan.layout import Split
from trine.plan.plan import Axis, Plan
from trine.program.place import Placement, place
from trine.program.share import shares

How = Literal["merged", "summed", "whole"]
FOUND = {
    "merged": "each tile makes its part of the statistics, which are then merged",
    "summed": "each tile makes a partial sum, and the sums are added",
    "whole": "the tiles are gathered and every engine runs all of it",
}
MOST_ROWS = 48


class Layer(msgspec.Struct, frozen=True):
    """One module, or one operator: its operators, last output, and sums; ``cuts`` tile all of it, ``partly`` some.

    whole: of one operator, the cuts that leave it whole and why.
    """

    name: str
    operators: tuple[str, ...]
    shape: tuple[int, ...]
    num_parameters: int
    flops: float
    activation_bytes: int
    cuts: tuple[str, ...]
    partly: tuple[str, ...] = ()
    whole: tuple[tuple[str, str], ...] = ()


class Point(msgspec.Struct, frozen=True):
    """A sequential point: an operator that needs all of some dimensions of its input, and what is done about it."""

    operator: str
    how: How
    along: tuple[str, ...]
    layer: str
    flops: float


class CutShare(msgspec.Struct, frozen=True):
    """One dimension that can be cut: its size, and how much of the FLOPs ran tiled on two engines: of operators that
    have the dimension, and of all; the heaviest that ran whole."""

    cut: str
    size: int
    of_having: float
    of_all: float
    whole: tuple[tuple[str, float], ...] = ()


class Anatomy:
    """The answers for one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.flops = {op.name: operator_flops(graph, number) for number, op in enumerate(graph.operators)}
        self.sizes = cut_sizes(graph)
        plans = {cut: Plan(axes=(Axis("cut", 2, cut),)) for cut, size in self.sizes.items() if size > 1}
        self.placed = {cut: place(graph, plan) for cut, plan in plans.items()}
        self.tiled = {
            cut: {p.op.name for p in placement.placed if p.rules[0] is not None}
            for cut, placement in self.placed.items()
        }
        self.names = _names(self.placed)
        self.moving = _moving(graph)

    def cuts(self) -> tuple[CutShare, ...]:
        """Each dimension that can be cut."""
        result = []
        for cut, placement in self.placed.items():
            (share,) = shares(placement)
            of_all = share.tiled / share.total if share.total else 1.0
            result.append(CutShare(cut, self.sizes[cut], share.of_having, of_all, share.whole[:12]))
        return tuple(sorted(result, key=lambda c: -c.of_all))

    def operators(self) -> tuple[Layer, ...]:
        """One row for each operator."""
        seen: set[str] = set()
        return tuple(
            self._layer(f"{op.module}: {op.name}".removeprefix(": "), (op,), seen) for op in self.graph.operators
        )

    def layers(self, most: int = MOST_ROWS) -> tuple[Layer, ...]:
        """One row for each module, or for the modules around them where they are too many."""
        deepest = max((op.module.count(".") + 1 for op in self.graph.operators), default=1)
        groups: dict[str, list[Operator]] = {}
        for depth in range(deepest, 0, -1):
            groups = {}
            for op in self.graph.operators:
                name = ".".join(op.module.split(".")[:depth]) or "(top)"
                groups.setdefault(name, []).append(op)
            if len(groups) <= most:
                break
        seen: set[str] = set()
        return tuple(self._layer(name, ops, seen) for name, ops in groups.items())

    def _layer(self, name: str, ops: Sequence[Operator], seen: set[str]) -> Layer:
        """``seen``: parameters counted before."""
        tensors = self.graph.tensors
        shown = [op for op in ops if op.name in self.moving] or ops
        made = next(n for n in shown[-1].outputs if n is not None)
        fresh = {n for op in ops for n in op.inputs if tensors[n].kind == "parameter"} - seen
        seen |= fresh
        kept = [n for op in ops if op.base not in VIEWS for n in op.outputs if n is not None]
        weights = {op.name: max(self.flops[op.name], 1.0) for op in ops if op.name in self.moving}
        total = sum(weights.values())
        parts = {cut: sum(w for n, w in weights.items() if n in tiled) for cut, tiled in self.tiled.items()}
        return Layer(
            name, tuple(dict.fromkeys(op.base.strip("_") for op in shown)), tensors[made].shape,
            sum(tensors[n].num_elements for n in fresh), sum(self.flops[op.name] for op in ops),
            sum(tensors[n].num_bytes for n in kept),
            tuple(cut for cut, n in parts.items() if total and n >= 0.999 * total),
            tuple(cut for cut, n in parts.items() if 0 < n < 0.999 * total),
            self._whole(ops[0]) if len(ops) == 1 else (),
        )  # fmt: skip

    def _whole(self, op: Operator) -> tuple[tuple[str, str], ...]:
        """The cuts that leave an operator whole, with the reason."""
        if op.name not in self.moving:
            return ()
        return tuple((cut, self._why(op, cut)) for cut, tiled in self.tiled.items() if op.name not in tiled)

    def _why(self, op: Operator, cut: str) -> str:
        """Why a cut leaves an operator whole."""
        placement = self.placed[cut]
        states = [placement.feeds.get(n) or placement.made.get((n, 0)) for n in op.inputs]
        places = [(i, s[0].dim) for i, s in enumerate(states) if s is not None and isinstance(s[0], Split)]
        if not places:
            return "no input of it is cut"
        family = family_of(op)
        if isinstance(family, Whole):
            return f"no family describes {op.base.strip('_')}"
        rules = [r for r in family.rules(op, self.graph.tensors) if any(self._cuts(r.cut_of(i), d) for i, d in places)]
        if not rules:
            return "needs all of it"
        multiple = max(rule.multiple for rule in rules)
        return f"its parts are multiples of {multiple}" if multiple > 1 else "these parts of it are no boxes"

    def points(self) -> tuple[Point, ...]:
        """Every sequential point, in order of execution."""
        result = []
        for op in self.graph.operators:
            found: dict[How, dict[str, None]] = {}
            for position, name in enumerate(op.inputs):
                for dim, length in enumerate(self.graph.tensors[name].shape if name in self.moving else ()):
                    how = self._how(op, position, dim) if length > 1 else None
                    if how is not None:
                        found.setdefault(how, {})[self.names.get((name, dim), f"dimension {dim}")] = None
            for how, along in found.items():
                layer = op.module or op.name
                result.append(Point(op.base.strip("_"), how, tuple(along), layer, self.flops[op.name]))
        return tuple(result)

    def _how(self, op: Operator, position: int, dim: int) -> How | None:
        """What an operator does about a cut dimension of an input; None if its pieces are independent there."""
        tensors, name = self.graph.tensors, op.inputs[position]
        rewrite = REWRITES.get(op.target)
        if rewrite is not None and position == 0:
            lead = rewrite.lead(op, tensors, [(dim, even(tensors[name].shape[dim], (1.0, 1.0)))], [False])
            if lead is not None and lead[0] > 1:
                return "merged"
            if op.base == "batch_norm":
                return None
        rules = [rule for rule in family_of(op).rules(op, tensors) if self._cuts(rule.cut_of(position), dim)]
        if any(not rule.reduce for rule in rules):
            return None
        if rules:
            terms = [n for n in op.inputs if tensors[n].is_floating and len(tensors[n].shape) > 1]
            return "summed" if terms == [name] else None  # a product of two tensors is no sequential point
        return "whole" if (name, dim) in self.names else None

    @staticmethod
    def _cuts(cut: object, dim: int) -> bool:
        return getattr(cut, "dim", None) == dim


def _names(placed: Mapping[str, Placement]) -> dict[tuple[str, int], str]:
    """(tensor, dimension) → the cut that reaches it."""
    result: dict[tuple[str, int], str] = {}
    for cut, placement in placed.items():
        layouts: Iterable[tuple[str, object]] = [
            *((name, layout[0]) for name, layout in placement.feeds.items()),
            *((name, layout[0]) for (name, _), layout in placement.made.items()),
        ]
        for name, state in layouts:
            if isinstance(state, Split):
                result.setdefault((name, state.dim), cut)
    return result


def _moving(graph: Graph) -> set[str]:
    """Names of tensors and operators that depend on an input of the model."""
    result = set(graph.inputs)
    for op in graph.operators:
        if not result.isdisjoint(op.inputs):
            result.add(op.name)
            result.update(name for name in op.outputs if name is not None)
    return result
