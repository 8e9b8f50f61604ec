"""Convolutions: batch by rows, space by windows, output channels by cut weights, input channels by partial sums."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, size, volume
from trine.operators.arguments import SAME, changed, cut, output, shape, spread, step
from trine.operators.family import Family, Local, Rule, Tensors, register
from trine.operators.relation import Scaled, Window
from trine.operators.window import padding_of

UNLIMITED = 1 << 30


def geometry(op: Operator, tensors: Tensors) -> tuple[Window, ...]:
    """The window of each spatial dimension."""
    here, weight, made = shape(op, tensors, "input"), shape(op, tensors, "weight"), output(op, tensors)
    num = len(weight) - 2
    stride, dilation = spread(op.args["stride"], num), spread(op.args["dilation"], num)
    padding, kernel = op.args["padding"], weight[2:]
    if padding == "same":
        pads: tuple[int, ...] = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        pads = (0,) * num if padding == "valid" else spread(padding, num)
    return tuple(Window(kernel[i], stride[i], dilation[i], pads[i], here[i - num], made[i - num]) for i in range(num))


@register
class Convolution(Family):
    """Convolutions in one, two and three dimensions, not transposed."""

    names = ("conv1d", "conv2d", "conv3d", "convolution")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        if op.args.get("transposed"):
            return ()
        here, weight = shape(op, tensors, "input"), shape(op, tensors, "weight")
        num, groups = len(weight) - 2, op.args["groups"]
        channel = len(here) - num - 1
        result = [Rule("row", here[0], cut(op, "input", 0))] if channel else []
        for i, window in enumerate(geometry(op, tensors)):
            dim = channel + 1 + i
            result.append(Rule("space", window.num_range, cut(op, "input", dim, window), ((0, dim),)))
        features = (*cut(op, "weight", 0), *cut(op, "bias", 0))
        if groups == 1:
            result.append(Rule("feature", weight[0], features, ((0, channel),)))
            bias = tuple(c.position for c in cut(op, "bias", 0))
            summed = (*cut(op, "input", channel), *cut(op, "weight", 1))
            result.append(Rule("contraction", weight[1], summed, (), "sum", bias))
        else:
            each = weight[0] // groups
            source = SAME if each == weight[1] else Scaled(each, weight[1])
            grouped = (*cut(op, "input", channel, source), *features)
            result.append(Rule("row", weight[0], grouped, ((0, channel),), multiple=each))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op = piece.op
        update: dict[str, Any] = {}
        if piece.dropped:
            update["bias"] = None
        if op.args.get("transposed"):
            return (op,)
        num = len(shape(op, piece.tensors, "weight")) - 2
        if op.args["groups"] > 1:
            channels = size(piece.out_boxes[0][-num - 1])
            update["groups"] = channels * op.args["groups"] // shape(op, piece.tensors, "weight")[0]
        windows = geometry(op, piece.tensors)
        padding = padding_of(windows, piece.in_boxes[0][-num:], piece.out_boxes[0][-num:], (UNLIMITED,) * num)
        target = op.target.replace(".padding", ".default")
        if padding.is_own:
            return (changed(op, target, **update, padding=list(padding.own)),)
        padded = step(op, "pad", "aten.constant_pad_nd.default", self=op.args["input"], pad=padding.as_pad(), value=0)
        return padded, changed(op, target, **update, input="%" + padded.name, padding=list(padding.own))

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        weight = in_boxes[1]
        return 2.0 * volume(out_boxes[0]) * volume(weight[1:]) if size(weight[0]) else 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]
