"""How much of the work a plan really cuts: floating-point operations that ran tiled, axis by axis."""

from dataclasses import dataclass

from trine.graph.part import full, size
from trine.operators.family import family_of
from trine.plan.layout import Split
from trine.plan.plan import FEATURES
from trine.program.place import Placed, Placement


@dataclass(frozen=True)
class Share:
    """Forward floating-point operations of one axis.

    tiled: of operators that are cut; having: of operators that have the dimension (an input is cut along it, or on an
    axis that cuts features, they have weights that could be); total: of all; whole: operators that have the dimension
    and ran whole, the heaviest first.
    """

    axis: str
    cut: str
    tiled: float
    having: float
    total: float
    whole: tuple[tuple[str, float], ...]

    @property
    def of_having(self) -> float:
        """Tiled part of the work that has the dimension."""
        return self.tiled / self.having if self.having else 1.0


def shares(placement: Placement) -> tuple[Share, ...]:
    """One share for each axis of the plan."""
    result = []
    work = [(placed, flops(placement, placed)) for placed in placement.placed]
    for number, axis in enumerate(placement.plan.axes):
        tiled = having = 0.0
        whole = []
        for placed, n in work:
            if is_tiled(placement, placed, number):
                tiled += n
                having += n
            elif has_dimension(placement, placed, number, axis.cut):
                having += n
                whole.append((f"{placed.op.base} {placed.op.module or placed.op.name}", n))
        whole.sort(key=lambda pair: -pair[1])
        result.append(Share(axis.name, axis.cut, tiled, having, sum(n for _, n in work), tuple(whole)))
    return tuple(result)


def flops(placement: Placement, placed: Placed) -> float:
    """Work of the whole operator."""
    tensors = placement.tensors
    inputs = [full(tensors[name].shape) for name in placed.op.inputs]
    outputs = [full(tensors[name].shape) for name in placed.op.outputs if name is not None]
    return family_of(placed.op).flops(placed.op, inputs, outputs)


def is_tiled(placement: Placement, placed: Placed, number: int) -> bool:
    """Whether an operator is cut along an axis, so that no coordinate does all of it."""
    rule = placed.rules[number]
    if rule is None:
        return False
    for names, layouts in ((placed.op.inputs, placed.needs), (placed.op.outputs, placed.layouts)):
        for name, layout in zip(names, layouts, strict=True):
            state = layout[number]
            if name is not None and isinstance(state, Split):
                length = placement.tensors[name].shape[state.dim]
                if length > 1 and all(size(part) < length for part in state.parts):
                    return True
    return False


def has_dimension(placement: Placement, placed: Placed, number: int, cut: str) -> bool:
    """Whether an operator that ran whole along an axis could have been cut by it.  A dimension of one index cannot."""
    for name in placed.op.inputs:
        layout = placement.made.get((name, placed.stage))
        state = layout[number] if layout is not None else None
        if isinstance(state, Split) and placement.tensors[name].shape[state.dim] > 1:
            return True
    rules = family_of(placed.op).rules(placed.op, placement.tensors)
    return cut in FEATURES and any(rule.kind == "feature" and rule.length > 1 for rule in rules)
