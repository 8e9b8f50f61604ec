"""Placement: for each operator and mesh axis, the rule by which it is cut, and the layouts that follow.

Operators are visited in order.  For each axis an operator follows the largest input that is cut in a way one of its
rules knows; on an axis that cuts features, a convolution or linear whose input is whole starts a new cut.  A
sequential point that can be rewritten (batch norm, cross-entropy over cut classes) is; every other operator runs whole
along the axis.  Nothing here talks about messages: they follow from the layouts (see :mod:`trine.program.moves`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trine.graph.graph import Graph, Operator, Tensor
from trine.graph.part import Part, even, is_partition, union
from trine.operators.family import Rule, family_of, rules_of
from trine.operators.ring import ring
from trine.operators.sequential import LOCAL, REWRITES, Rewrite
from trine.plan.anchors import feature_parts
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, State
from trine.plan.plan import FEATURES, Axis, Plan

ATTENTION = "scaled_dot_product_attention"
INPUT_DIMS = {"height": -2, "width": -1, "depth": -3}  # of image-like inputs (N, C, …)


@dataclass(frozen=True)
class Placed:
    """An operator with its rule, the layouts its inputs must have and those its outputs get, axis by axis."""

    op: Operator
    stage: int
    rules: tuple[Rule | None, ...]
    needs: tuple[Layout, ...]
    layouts: tuple[Layout, ...]


@dataclass
class Placement:
    """All placed operators, the tensors they speak of, and where every value is made: (tensor, stage) → layout."""

    plan: Plan
    graph: Graph
    tensors: dict[str, Tensor]
    placed: list[Placed] = field(default_factory=list)
    made: dict[tuple[str, int], Layout] = field(default_factory=dict)
    feeds: dict[str, Layout] = field(default_factory=dict)
    chosen: dict[tuple[str, int], "Chosen"] = field(default_factory=dict)  # by operator and axis


Chosen = tuple[Rule, tuple[Part, ...]] | None  # None: whole along the axis


def place(
    graph: Graph, plan: Plan, first: Placement | None = None, chosen: Mapping[tuple[str, int], Chosen] | None = None
) -> Placement:
    """Place every operator of the graph.  Shapes in layouts are global.

    first, chosen: a placement before this one, whose layouts say what each engine owns, and the rules and parts to take
    instead of finding them.
    """
    return _Placer(graph, plan, first, chosen or {}).run()


def stages_of(graph: Graph, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Stages in which each operator runs.  One, but for those that depend on no parameter (masks, positions): they
    are cheap and run in every stage that reads them, so that nothing is sent."""
    number, stage_of = 0, {}
    starts = {name: i + 1 for i, name in enumerate(plan.stage_starts)}
    for op in graph.operators:
        number = starts.get(op.name, number)
        stage_of[op.name] = number
    trained = {t.name for t in graph.tensors.values() if t.kind in ("parameter", "buffer")}
    free: set[str] = set()
    for op in graph.operators:
        if trained.isdisjoint(op.inputs):
            free.add(op.name)
        else:
            trained.update(name for name in op.outputs if name is not None)
    consumers, result = graph.consumers(), dict[str, tuple[int, ...]]()
    result.update({op.name: (stage_of[op.name],) for op in graph.operators})
    for op in reversed(graph.operators):
        if op.name in free:
            readers = [c for name in op.outputs if name is not None for c in consumers[name]]
            wanted = sorted({s for c in readers for s in result[c.name]})
            result[op.name] = tuple(wanted) or result[op.name]
    return result


def input_state(tensor: Tensor, axis: Axis, batch_dim: int) -> State:
    """How an axis cuts an input of the model at the start; whole if it has no such dimension."""
    rank, dim = len(tensor.shape), None
    if axis.cut == "batch" and batch_dim >= 0 and rank:
        dim = batch_dim
    elif axis.cut in INPUT_DIMS and tensor.is_floating and rank >= 2 - INPUT_DIMS[axis.cut]:
        dim = rank + INPUT_DIMS[axis.cut]
    elif axis.cut == "length" and tensor.is_floating and rank == 3:
        dim = 2
    elif axis.cut == "sequence" and rank in (2, 3):
        dim = 1
    return WHOLE if dim is None else Split(dim, even(tensor.shape[dim], axis.weights))


class _Placer:
    """Walks the graph once; see :func:`place`."""

    def __init__(
        self, graph: Graph, plan: Plan, first: Placement | None, fixed: Mapping[tuple[str, int], Chosen]
    ) -> None:
        self.graph, self.plan, self.first, self.fixed = graph, plan, first, dict(fixed)
        self.out = Placement(plan, graph, dict(graph.tensors))
        self.stages = stages_of(graph, plan)
        self.parts = [feature_parts(graph, axis) if axis.cut in FEATURES else {} for axis in plan.axes]
        self.local = [axis.cut == "batch" and plan.batch_norm == "local" for axis in plan.axes]
        self.feeds = self.out.feeds
        for tensor in graph.tensors.values():
            if tensor.kind == "input":
                dim = graph.batch_dims.get(tensor.name, -1)
                self.feeds[tensor.name] = tuple(input_state(tensor, axis, dim) for axis in plan.axes)
            elif tensor.kind != "activation":
                self.feeds[tensor.name] = (WHOLE,) * len(plan.axes)

    def run(self) -> Placement:
        for op in self.graph.operators:
            for stage in self.stages[op.name]:
                self.visit(op, stage)
        return self.out

    def layout(self, name: str, stage: int) -> Layout:
        """Layout of a value where it is made, seen from a stage."""
        if name in self.feeds:
            return self.feeds[name]
        return next(self.out.made[name, s] for s in (stage, *range(self.plan.num_stages)) if (name, s) in self.out.made)

    def owned(self, name: str, stage: int) -> Layout:
        """The layout of a value without what is made twice: statistics are of that."""
        made = {} if self.first is None else self.first.made
        known = (made.get((name, s)) for s in (stage, *range(self.plan.num_stages)))
        return next((layout for layout in known if layout is not None), None) or self.layout(name, stage)

    def visit(self, op: Operator, stage: int) -> None:
        states = [self.layout(name, stage) for name in op.inputs]
        if op.base == ATTENTION and self.plan.attention == "ring":
            query = self.owned(op.inputs[0], stage)
            new = ring(op, self.out.tensors, [(s.dim, s.parts) if isinstance(s, Split) else None for s in query])
            if new is not None:
                self.go_round(new, stage, query)
                return
        rewrite = REWRITES.get(op.target)
        if rewrite is not None:
            states[0] = self.owned(op.inputs[0], stage)
            cuts = [(s.dim, s.parts) if isinstance(s, Split) else None for s in states[0]]
            lead = rewrite.lead(op, self.out.tensors, cuts, self.local)
            if lead is not None:
                new = rewrite.apply(op, self.out.tensors, lead, cuts)
                self.out.tensors.update({t.name: t for t in new.tensors})
                self.state_operator(new.operators[0], stage, states, lead)
                for later in new.operators[1:]:
                    self.simple(later, stage)
                return
        self.simple(op, stage)

    def go_round(self, new: Rewrite, stage: int, query: Layout) -> None:
        """Place the operators of a ring: each follows the query rows, whatever its keys are."""
        self.out.tensors.update({t.name: t for t in new.tensors})
        for op in new.operators[:-1]:
            rules = [rule for rule in rules_of(op, self.out.tensors) if rule.kind == "query"]
            for axis, state in enumerate(query):
                if isinstance(state, Split) and state.dim == len(self.out.tensors[op.inputs[0]].shape) - 2:
                    self.fixed.setdefault((op.name, axis), (rules[0], state.parts))
            self.simple(op, stage)
        self.simple(new.operators[-1], stage)

    def state_operator(self, op: Operator, stage: int, states: Sequence[Layout], lead: Sequence[int]) -> None:
        """Place the first operator of a rewrite: along an axis with a lead other than 1 its input stays as it is cut
        and its output is cut by coordinate along the axis's own leading dimension; other inputs, which lack the
        dimension that is cut, are whole on it."""
        rules: list[Rule | None] = []
        needs = [list[State]() for _ in op.inputs]
        layout: list[State] = []
        for number, size in enumerate(lead):
            if size != 1:
                rules.append(Rule("state", size, (), ((0, number),)))
                for position, need in enumerate(needs):
                    need.append(states[0][number] if position == 0 else WHOLE)
                units = tuple(((c, c + 1),) for c in range(size))
                layout.append(WHOLE if size == LOCAL else Split(number, units))
            else:
                rule, row, outs = self.along(op, number, [s[number] for s in states[: len(op.inputs)]])
                rules.append(rule)
                for need, state in zip(needs, row, strict=True):
                    need.append(state)
                layout.append(outs[0])
        self.record(Placed(op, stage, tuple(rules), tuple(map(tuple, needs)), (tuple(layout),)))

    def simple(self, op: Operator, stage: int) -> None:
        """Place an operator by its rules, each axis on its own."""
        states = [self.layout(name, stage) for name in op.inputs]
        columns = [self.along(op, a, [s[a] for s in states]) for a in range(len(self.plan.axes))]
        rules = tuple(rule for rule, _, _ in columns)
        needs = tuple(tuple(column[1][i] for column in columns) for i in range(len(op.inputs)))
        layouts = tuple(tuple(column[2][i] for column in columns) for i in range(len(op.outputs)))
        self.record(Placed(op, stage, rules, needs, layouts))

    def record(self, placed: Placed) -> None:
        """Enter a placed operator; a partial sum is settled at once, so that no operator ever sees one."""
        self.out.placed.append(placed)
        for name, layout in zip(placed.op.outputs, placed.layouts, strict=True):
            if name is not None:
                self.out.made[name, placed.stage] = tuple(
                    self.settle(name, axis, state) for axis, state in zip(self.plan.axes, layout, strict=True)
                )

    def settle(self, name: str, axis: Axis, state: State) -> State:
        """What becomes of a partial sum: spread over the channels on a channel axis, else everybody gets all."""
        if state != PARTIAL:
            return state
        shape = self.out.tensors[name].shape
        if axis.cut != "channel" or len(shape) < 2:
            return WHOLE
        dim = 1 if len(shape) >= 4 else len(shape) - 1
        return Split(dim, even(shape[dim], axis.weights)) if shape[dim] >= axis.size else WHOLE

    def along(self, op: Operator, number: int, states: Sequence[State]) -> tuple[Rule | None, list[State], list[State]]:
        """The rule for one axis, what each input needs on it and what each output gets."""
        axis = self.plan.axes[number]
        family = family_of(op)
        key = (op.name, number)
        chosen = self.fixed[key] if key in self.fixed else self.choose(op, number, states)
        self.out.chosen[key] = chosen
        if chosen is None:
            narrow = family.whole_needs(op, self.out.tensors)
            needs: list[State] = []
            for position, state in enumerate(states):
                part = narrow.get((position, state.dim)) if isinstance(state, Split) else None
                needs.append(Split(state.dim, (part,) * axis.size) if part is not None else WHOLE)  # type: ignore[union-attr]
            return None, needs, [WHOLE] * len(op.outputs)
        rule, parts = chosen
        needs = []
        for position in range(len(states)):
            cut = rule.cut_of(position)
            needs.append(WHOLE if cut is None else Split(cut.dim, tuple(cut.relation.needs(p) for p in parts)))
        outs: list[State] = [PARTIAL if rule.reduce else WHOLE] * len(op.outputs)
        for output, dim in rule.outputs:
            if not rule.reduce:
                outs[output] = Split(dim, parts)
        return rule, needs, outs

    def choose(self, op: Operator, number: int, states: Sequence[State]) -> Chosen:
        """The rule along one axis and the parts of its range, or None to run whole."""
        axis = self.plan.axes[number]
        tensors = self.out.tensors
        rules = rules_of(op, tensors)
        order = sorted(range(len(states)), key=lambda i: -tensors[op.inputs[i]].num_elements)
        for position in order:
            state = states[position]
            if not isinstance(state, Split):
                continue
            for rule in rules:
                cut = rule.cut_of(position)
                if cut is None or cut.dim != state.dim:
                    continue
                if rule.kind == "feature":  # its other input is a weight: following it makes no sense
                    continue
                parts = joined(rule, states) or rule.follow(cut, state.parts)
                if parts is not None and legal(rule, parts):
                    return rule, spread_out(rule, parts, axis)
        if axis.cut in FEATURES and all(state == WHOLE for state in states):
            return self.start(op, number, rules)
        return None

    def start(self, op: Operator, number: int, rules: Sequence[Rule]) -> tuple[Rule, tuple[Part, ...]] | None:
        """On an axis that cuts features: begin a cut at an operator with weights."""
        axis = self.plan.axes[number]
        for rule in rules:
            if rule.kind != "feature" or rule.length < 2:
                continue
            parts = self.parts[number].get(op.name) or even(rule.length, axis.weights)
            if legal(rule, parts):
                return rule, parts
        return None


def spread_out(rule: Rule, parts: tuple[Part, ...], axis: Axis) -> tuple[Part, ...]:
    """The parts; where windows would leave all that is left of a map to one engine, cut by the axis's shares again."""
    if rule.kind != "space" or sum(bool(part) for part in parts) > 1:
        return parts
    fresh = even(rule.length, axis.weights)
    return fresh if sum(bool(part) for part in fresh) > 1 and legal(rule, fresh) else parts


def joined(rule: Rule, states: Sequence[State]) -> tuple[Part, ...] | None:
    """What follows from all inputs that the rule cuts together, where each is cut as the rule wants and they make one
    partition: each engine then joins (cat) or adds just what it has."""
    followed = []
    for cut in rule.inputs:
        state = states[cut.position]
        if not isinstance(state, Split) or state.dim != cut.dim:
            return None
        followed.append([cut.relation.follow(part) for part in state.parts])
    parts = tuple(union(*column) for column in zip(*followed, strict=True))
    return parts if is_partition(parts, rule.length) and legal(rule, parts) else None


def legal(rule: Rule, parts: Sequence[Part]) -> bool:
    """Whether a rule accepts these parts of its range."""
    accepts: Callable[[Part], bool] = rule.accepts
    return all(accepts(part) for part in parts)
