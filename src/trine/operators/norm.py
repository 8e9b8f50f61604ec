"""Norms whose statistics lie inside a piece: layer, RMS and group norm, batch norm in evaluation, softmax."""

from collections.abc import Sequence

from trine.graph.graph import Operator
from trine.graph.part import Box, size, volume
from trine.operators.arguments import changed, cut, output, rows, shape, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Same


class Norm(Family):
    """Abstract: about eight operations an element; the first input is kept."""

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 8.0 * volume(in_boxes[0])


@register
class LayerNorm(Norm):
    """The trailing dimensions are normalized and stay whole; the leading ones are rows."""

    names = ("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "input")
        return rows(op, range(len(here) - len(op.args["normalized_shape"])), here, "input")

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]


@register
class GroupNorm(Norm):
    """Rows of the batch, and channels by whole groups."""

    names = ("group_norm", "native_group_norm")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "input")
        result = list(rows(op, (0,), here, "input"))
        each = here[1] // _num_groups(op)
        if here[1] > 1 and not any(op.outputs[1:]):
            cuts = (*cut(op, "input", 1), *cut(op, "weight", 0), *cut(op, "bias", 0))
            result.append(Rule("row", here[1], cuts, ((0, 1),), multiple=each))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        box, here = piece.in_boxes[0], shape(piece.op, piece.tensors, "input")
        groups = size(box[1]) * _num_groups(piece.op) // here[1]
        if piece.op.base == "group_norm":
            return (changed(piece.op, num_groups=groups),)
        return (changed(piece.op, N=size(box[0]), C=size(box[1]), group=groups),)

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]


def _num_groups(op: Operator) -> int:
    return int(op.args["num_groups" if op.base == "group_norm" else "group"])


@register
class InstanceNorm(Norm):
    """Every channel of every sample has its own statistics, over the dimensions behind them."""

    names = ("instance_norm",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "input")
        if op.args["running_mean"] is not None:
            return ()
        channel = (*cut(op, "input", 1), *cut(op, "weight", 0), *cut(op, "bias", 0))
        return (*rows(op, (0,), here, "input"), *((Rule("row", here[1], channel, ((0, 1),)),) if here[1] > 1 else ()))

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]


@register
class BatchNormEvaluation(Norm):
    """Batch norm with given statistics is elementwise; vectors follow the channel."""

    names = ("batch_norm_eval",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, same = output(op, tensors), Same()
        result = []
        for d in range(len(here)):
            cuts = [Cut(0, d, same)]
            if d == 1:
                cuts += [Cut(at, 0, same) for at in range(1, len(op.inputs))]
            if here[d] > 1:
                result.append(Rule("row", here[d], tuple(cuts), ((0, d),)))
        return tuple(result)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(in_boxes[0])


@register
class Softmax(Norm):
    """Every dimension but the one that is normalized is a row."""

    names = ("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        dim = wrap(op.args["dim"], len(here))
        return rows(op, (d for d in range(len(here)) if d != dim), here, "self")

    def saved(self, op: Operator) -> tuple[str, ...]:
        return tuple(name for name in op.outputs if name is not None)
