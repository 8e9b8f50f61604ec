"""Transposed convolutions: batch by rows, space by the inputs that reach an output, channels as in a convolution."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, full, size, volume
from trine.operators.arguments import changed, cut, output, shape, spread, step
from trine.operators.family import Family, Local, Rule, Tensors, register
from trine.operators.relation import Scaled, Transposed


def geometry(op: Operator, tensors: Tensors) -> tuple[Transposed, ...]:
    """What each spatial dimension of the output reads."""
    here, weight, made = shape(op, tensors, "input"), shape(op, tensors, "weight"), output(op, tensors)
    num, kernel = len(weight) - 2, weight[2:]
    stride, dilation, pad = (spread(op.args[key], num) for key in ("stride", "dilation", "padding"))
    return tuple(
        Transposed(kernel[i], stride[i], dilation[i], pad[i], here[i - num], made[i - num]) for i in range(num)
    )


@register
class TransposedConvolution(Family):
    """input [..., in, space], weight [in, out / groups, kernel] → [..., out, larger space]."""

    names = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, weight = shape(op, tensors, "input"), shape(op, tensors, "weight")
        num, groups = len(weight) - 2, op.args["groups"]
        channel = len(here) - num - 1
        result = [Rule("row", here[0], cut(op, "input", 0))] if channel else []
        for dim, relation in enumerate(geometry(op, tensors), channel + 1):
            result.append(Rule("space", relation.num_range, cut(op, "input", dim, relation), ((0, dim),)))
        if groups == 1:
            features = (*cut(op, "weight", 1), *cut(op, "bias", 0))
            result.append(Rule("feature", weight[1], features, ((0, channel),)))
            bias = tuple(c.position for c in cut(op, "bias", 0))
            summed = (*cut(op, "input", channel), *cut(op, "weight", 0))
            result.append(Rule("contraction", weight[0], summed, (), "sum", bias))
        else:
            source = Scaled(weight[1], weight[0] // groups)
            grouped = (*cut(op, "input", channel, source), *cut(op, "weight", 0, source), *cut(op, "bias", 0))
            result.append(Rule("row", weight[1] * groups, grouped, ((0, channel),), multiple=weight[1]))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, weight = piece.op, shape(piece.op, piece.tensors, "weight")
        relations = geometry(op, piece.tensors)
        num, channels = len(relations), size(piece.out_boxes[0][-len(relations) - 1])
        update: dict[str, Any] = {"bias": None} if piece.dropped else {}
        if op.args["groups"] > 1:
            update["groups"] = channels // weight[1]
        ins, outs = piece.in_boxes[0][-num:], piece.out_boxes[0][-num:]
        if ins == full([r.num_in for r in relations]) and outs == full([r.num_range for r in relations]):
            return (changed(op, **update),)
        pad: list[int] = []
        for relation, have, make in zip(relations[::-1], ins[::-1], outs[::-1], strict=True):
            first = have[0][0] * relation.stride - relation.pad  # of what the tile reaches, uncropped
            last = (have[-1][1] - 1) * relation.stride - relation.pad + relation.dilation * (relation.kernel - 1) + 1
            pad += [first - make[0][0], make[-1][1] - last]  # negative: taken away
        update |= {"padding": [0] * num, "output_padding": [0] * num}
        bias = op.args.get("bias") if "bias" not in update else None
        late = bias is not None and any(n > 0 for n in pad)  # outputs that nothing reaches are the bias
        spread_out = step(op, "spread", op.target, **{**op.args, **update, **({"bias": None} if late else {})})
        cropped = {"self": "%" + spread_out.name, "pad": pad, "value": 0}
        if not late:
            return spread_out, changed(op, "aten.constant_pad_nd.default", cropped)
        crop = step(op, "crop", "aten.constant_pad_nd.default", **cropped)
        column = step(op, "column", "aten.reshape.default", self=bias, shape=[channels, *([1] * num)])
        added = {"self": "%" + crop.name, "other": "%" + column.name}
        return spread_out, crop, column, changed(op, "aten.add.Tensor", added)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(in_boxes[0]) * volume(in_boxes[1][1:])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]
