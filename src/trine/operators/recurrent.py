"""Recurrent layers: only the batch is cut; along the sequence each step needs the one before."""

from collections.abc import Sequence

from trine.graph.graph import Operator, refs
from trine.graph.part import Box, size, volume
from trine.operators.arguments import SAME, shape
from trine.operators.family import Cut, Family, Rule, Tensors, register


@register
class Recurrent(Family):
    """input [steps, batch, features] (or batch first), hx [layers, batch, hidden] (one or two) and weights."""

    names = ("lstm", "gru", "rnn_tanh", "rnn_relu")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        if "batch_first" not in op.args or len(shape(op, tensors, "input")) != 3:
            return ()
        dim = 0 if op.args["batch_first"] else 1
        length, num_states = shape(op, tensors, "input")[dim], len(list(refs(op.args["hx"])))
        cuts = (Cut(0, dim, SAME), *(Cut(1 + i, 1, SAME) for i in range(num_states)))
        made = tuple((i, dim if i == 0 else 1) for i, name in enumerate(op.outputs) if name is not None)
        return (Rule("row", length, cuts, made),) if length > 1 else ()

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        steps = volume(in_boxes[0][:2])
        matrices = [box for box in in_boxes[2:] if len(box) == 2 and size(box[0]) > 1]
        return 2.0 * steps * sum(volume(box) for box in matrices)
