"""Writing into a copy of a tensor: rows along every dimension but the one that is written along."""

from collections.abc import Sequence

from trine.graph.graph import Operator
from trine.graph.part import Box
from trine.operators.arguments import rows, shape, wrap
from trine.operators.family import Family, Rule, Tensors, register


@register
class SliceScatter(Family):
    """A range of one dimension is overwritten."""

    names = ("slice_scatter",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        dim = wrap(op.args["dim"], len(here))
        return rows(op, (d for d in range(len(here)) if d != dim), here, "self", "src")

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()
