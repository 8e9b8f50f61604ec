"""Losses that end in a sum: every dimension but the classes is a partial sum."""

from collections.abc import Callable, Sequence

from trine.graph.graph import Operator
from trine.graph.part import Box, volume
from trine.operators.arguments import cut, shape
from trine.operators.family import Family, Rule, Tensors, register


@register
class CrossEntropy(Family):
    """input [rows, classes, ...] or [classes] and target → state (sum of losses, sum of weights)."""

    names = ("cross_entropy",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, target = shape(op, tensors, "input"), shape(op, tensors, "target")
        classes = 1 if len(here) > 1 else 0
        result = []
        for d in range(len(here)):
            if d != classes and here[d] > 1:
                at = d if len(target) == len(here) else d - (d > classes)
                result.append(Rule("contraction", here[d], (*cut(op, "input", d), *cut(op, "target", at)), (), "sum"))
        return tuple(result)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 5.0 * volume(in_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[1:]

    def kept_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """The logarithms of the probabilities; the losses' own type is at least float32."""
        return 4 * num(op.inputs[0])

    def passing_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """The gradient of these logarithms, zeros but for the targets."""
        return 4 * num(op.inputs[0])
