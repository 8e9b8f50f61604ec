"""Halos that are computed instead of exchanged: inside a run each tile is made as wide as its readers need.

The second of two placements.  The first has cut every operator by what its engine owns; here the cuts of a run are
widened backwards, from its last operator to its first, by what the next operators read, so that nothing has to move but
at the run's start.  Elements that several engines make are each read by their maker only, so sums of gradients stay
right; statistics and partial sums take what is owned, and what leaves the model is not widened.
"""

from collections.abc import Sequence

from trine.graph.graph import Graph
from trine.graph.part import Part, merge, union
from trine.operators.family import Rule
from trine.plan.layout import Split
from trine.plan.plan import SPACE, Plan
from trine.program.place import Chosen, Placed, Placement, place


def placement_of(graph: Graph, plan: Plan) -> Placement:
    """Place every operator; twice if halos are to be computed."""
    first = place(graph, plan)
    return place(graph, plan, first, widened(first)) if plan.recomputed_halos else first


def widened(placement: Placement) -> dict[tuple[str, int], Chosen]:
    """(operator, axis) → rule and parts, those inside the plan's runs as wide as their readers need."""
    result = dict(placement.chosen)
    for number, axis in enumerate(placement.plan.axes):
        if axis.cut in SPACE:
            _widen(placement, number, result)
    return result


def runs_of(placement: Placement) -> dict[str, int]:
    """Operator → the run that it is in."""
    names = [op.name for op in placement.graph.operators]
    result: dict[str, int] = {}
    for number, (first, last) in enumerate(placement.plan.recomputed_halos):
        result.update(dict.fromkeys(names[names.index(first) : names.index(last) + 1], number))
    return result


def _widen(placement: Placement, axis: int, chosen: dict[tuple[str, int], Chosen]) -> None:
    """Widen along one axis, in place."""
    runs, last = runs_of(placement), {output.tensor for output in placement.graph.outputs}
    makers = {(name, p.stage): p for p in placement.placed for name in p.op.outputs if name is not None}
    wanted: dict[tuple[str, int], list[Part]] = {}
    for here in reversed(placement.placed):
        run, found = runs.get(here.op.name), chosen.get((here.op.name, axis))
        if run is None or found is None:
            continue
        rule, parts = found
        names = [name for name in here.op.outputs if name is not None]
        if not rule.reduce and last.isdisjoint(names):
            asked = [wanted[name, here.stage] for name in names if (name, here.stage) in wanted]
            parts = _wider(rule, parts, asked)
            chosen[here.op.name, axis] = (rule, parts)
        for cut in rule.inputs:
            name = here.op.inputs[cut.position]
            maker = makers.get((name, here.stage))
            if maker is None or runs.get(maker.op.name) != run or not _is_cut(maker, name, axis, cut.dim):
                continue
            need = [cut.relation.needs(part) for part in parts]
            known = wanted.get((name, here.stage), [()] * len(need))
            wanted[name, here.stage] = [union(a, b) for a, b in zip(known, need, strict=True)]


def _wider(rule: Rule, parts: Sequence[Part], asked: Sequence[Sequence[Part]]) -> tuple[Part, ...]:
    """Parts with what is asked of them; as they were where the rule cannot run such parts."""
    result = []
    for number, part in enumerate(parts):
        whole = union(part, *(each[number] for each in asked))
        hull = merge([(whole[0][0], whole[-1][1])]) if whole else ()
        result.append(whole if rule.accepts(whole) else _on_multiples(hull, rule))
    return tuple(result) if all(rule.accepts(part) for part in result) else tuple(parts)


def _on_multiples(hull: Part, rule: Rule) -> Part:
    """A hull whose edges are where parts may start and end."""
    return tuple((low // rule.multiple * rule.multiple, min(-(-high // rule.multiple) * rule.multiple, rule.length))
                 for low, high in hull)  # fmt: skip


def _is_cut(maker: Placed, name: str, axis: int, dim: int) -> bool:
    """Whether an operator makes a tensor cut along a dimension."""
    state = maker.layouts[maker.op.outputs.index(name)][axis]
    return isinstance(state, Split) and state.dim == dim
