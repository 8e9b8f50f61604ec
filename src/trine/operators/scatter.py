"""Writing into a copy of a tensor: rows along every dimension but the one that is written along."""

from collections.abc import Sequence

from trine.graph.graph import Operator, is_ref
from trine.graph.part import Box
from trine.operators.arguments import SAME, cut, rows, shape, wrap
from trine.operators.family import Cut, Family, Rule, Tensors, register


class Writing(Family):
    """Abstract: no arithmetic to speak of; indices are kept, by reductions everything."""

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        if op.base.endswith("reduce"):
            return (*op.inputs, *(name for name in op.outputs if name is not None))
        return op.inputs[1:2] if "index" in op.args else ()


@register
class SliceScatter(Writing):
    """A range of one dimension is overwritten."""

    names = ("slice_scatter",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        dim = wrap(op.args["dim"], len(here))
        return rows(op, (d for d in range(len(here)) if d != dim), here, "self", "src")


@register
class SelectScatter(Writing):
    """One index of a dimension is overwritten; the source lacks the dimension."""

    names = ("select_scatter",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        dim = wrap(op.args["dim"], len(here))
        return tuple(
            Rule("row", here[d], (Cut(0, d, SAME), *cut(op, "src", d - (d > dim))), ((0, d),))
            for d in range(len(here))
            if d != dim and here[d] > 1
        )


@register
class Scatter(Writing):
    """Elements go where an index of their own says, along one dimension; along the others index and source must be as
    long as the tensor."""

    names = ("scatter", "scatter_add", "scatter_reduce")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        if not here:
            return ()
        dim = wrap(op.args["dim"], len(here))
        others = [shape(op, tensors, key) for key in ("index", "src") if is_ref(op.args.get(key))]
        alike = [d for d, n in enumerate(here) if d != dim and all(len(o) == len(here) and o[d] == n for o in others)]
        return rows(op, alike, here, "self", "index", "src")


@register
class IndexWriting(Writing):
    """Rows of a source go to the rows of one dimension that a list names, which is needed whole."""

    names = ("index_add", "index_copy", "index_fill", "index_reduce")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, source = shape(op, tensors, "self"), shape(op, tensors, "source")
        if not here or (source and len(source) != len(here)):
            return ()
        dim = wrap(op.args["dim"], len(here))
        return rows(op, (d for d in range(len(here)) if d != dim), here, "self", "source")
