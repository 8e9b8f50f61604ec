"""Random operators draw by the global number of an element, so a piece draws what the whole would."""

from collections.abc import Callable

from trine.graph.graph import Operator
from trine.graph.part import Box
from trine.operators.arguments import changed, cut, is_whole, output, outputs_along, shape
from trine.operators.family import Family, Local, Rule, Tensors, register


def as_lists(box: Box) -> list[list[list[int]]]:
    """A box as an argument: for each dimension its intervals."""
    return [[list(pair) for pair in part] for part in box]


@register
class Dropout(Family):
    """input, p, index (the number of this operator among the random ones) → input with elements dropped."""

    names = ("dropout",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "input")
        return tuple(
            Rule("row", length, cut(op, "input", d), outputs_along(op, d))
            for d, length in enumerate(here)
            if length > 1
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        if is_whole(piece):
            return (piece.op,)
        here = list(shape(piece.op, piece.tensors, "input"))
        return (changed(piece.op, shape=here, box=as_lists(piece.in_boxes[0])),)

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()

    def kept_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """The mask: one byte an element."""
        return sum(num(name) for name in op.outputs if name is not None)


@register
class Bernoulli(Family):
    """shape, p, index, dtype → ones with probability p, else zeros."""

    names = ("bernoulli",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        if not op.target.startswith("trine."):
            return ()
        made = output(op, tensors)
        return tuple(Rule("row", made[d], (), ((0, d),)) for d in range(len(made)) if made[d] > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        return (piece.op,) if is_whole(piece) else (changed(piece.op, box=as_lists(piece.out_boxes[0])),)

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()
