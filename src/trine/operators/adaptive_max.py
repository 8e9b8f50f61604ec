"""Adaptive maxima: batch and channel by rows, space by a table of bins.  The numbers of the maxima need the whole."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, full, indices, volume, within
from trine.operators.arguments import changed, cut, out_box, output, shape, step
from trine.operators.family import Family, Local, Rule, Tensors, register
from trine.operators.pooling import around, bins, num_spatial


@register
class AdaptiveMaxPool(Family):
    """Maxima over bins; of equal ones the first is it, in the order of the elements."""

    names = ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made, num = shape(op, tensors, "self"), output(op, tensors), num_spatial(op)
        result = list(around(op, tensors, num))
        for dim in range(len(here) - num, len(here)):
            if made[dim] > 1 and not any(op.outputs[1:]):
                relation = bins(here[dim], made[dim])
                result.append(Rule("space", made[dim], cut(op, "self", dim, relation), ((0, dim),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, here, made = piece.op, shape(piece.op, piece.tensors, "self"), output(piece.op, piece.tensors)
        space = range(len(here) - num_spatial(op), len(here))
        if all(piece.in_boxes[0][d] == full(here)[d] and out_box(piece)[d] == full(made)[d] for d in space):
            return (op,)
        source, steps = op.args["self"], list[Operator]()
        for d in reversed(space):  # the last dimension first: so ties go to the first element
            relation = bins(here[d], made[d])
            have, make = piece.in_boxes[0][d], out_box(piece)[d]
            wanted = [within(relation.needs(((o, o + 1),)), have)[0] for o in indices(make).tolist()]
            args: dict[str, Any] = {"dim": d, "bins": [list(pair) for pair in wanted]}
            steps.append(step(op, f"dim{d}", "trine.bin_max", input=source, **args))
            source = "%" + steps[-1].name
        return *steps[:-1], changed(op, steps[-1].target, steps[-1].args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return float(volume(in_boxes[0]))

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs
