"""Pools: batch and channel by rows, space by windows; adaptive pools by a table, global ones by a partial sum."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, Part, full, indices, size, volume, within
from trine.operators.arguments import SAME, changed, cut, out_box, output, outputs_along, rows, shape, spread, step
from trine.operators.family import Family, Local, Rule, Tensors, register
from trine.operators.relation import Relation, Table, Window
from trine.operators.window import padding_of


def geometry(op: Operator, tensors: Tensors) -> tuple[Window, ...]:
    """The window of each spatial dimension."""
    num = num_spatial(op)
    here, made = shape(op, tensors, "self"), output(op, tensors)
    kernel = spread(op.args["kernel_size"], num)
    stride = spread(op.args["stride"] or kernel, num)
    pad, dilation = spread(op.args["padding"], num), spread(op.args.get("dilation", 1), num)
    return tuple(Window(kernel[i], stride[i], dilation[i], pad[i], here[i - num], made[i - num]) for i in range(num))


def is_whole_space(windows: Sequence[Window], ins: Box, outs: Box) -> bool:
    """Whether a piece has all the spatial dimensions."""
    return ins == full([w.num_in for w in windows]) and outs == full([w.num_range for w in windows])


def limits(windows: Sequence[Window], ins: Box) -> list[int]:
    """The most padding that a pool takes as its own argument."""
    return [w.kernel // 2 if size(have) >= w.kernel else 0 for w, have in zip(windows, ins, strict=True)]


def around(op: Operator, tensors: Tensors, num: int) -> tuple[Rule, ...]:
    """Rows over the dimensions in front of the last ``num``."""
    here = shape(op, tensors, "self")
    return rows(op, range(len(here) - num), here, "self")


class WindowPool(Family):
    """Abstract: a pool with windows of one size."""

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        windows = geometry(op, tensors)
        num, rank = len(windows), len(shape(op, tensors, "self"))
        result = list(around(op, tensors, num))
        floating = tensors[op.inputs[0]].is_floating  # integers cannot be padded by infinity
        for dim, window in enumerate(windows, rank - num):
            if window.num_range > 1 and floating:
                result.append(Rule("space", window.num_range, cut(op, "self", dim, window), outputs_along(op, dim)))
        return tuple(result)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return float(prod(spread(op.args["kernel_size"], num_spatial(op))) * volume(out_boxes[0]))


@register
class MaxPool(WindowPool):
    """Maxima; the fill is minus infinity.  Where they were is told by numbers of elements of the whole."""

    names = (
        "max_pool1d", "max_pool2d", "max_pool3d",
        "max_pool2d_with_indices", "max_pool3d_with_indices",
    )  # fmt: skip

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, windows = piece.op, geometry(piece.op, piece.tensors)
        num = len(windows)
        ins, outs = piece.in_boxes[0][-num:], out_box(piece)[-num:]
        if is_whole_space(windows, ins, outs):
            return (op,)
        padding = padding_of(windows, ins, outs, limits(windows, ins))
        source, before = op.args["self"], list[Operator]()
        if not padding.is_own:
            padded = step(
                op, "pad", "aten.constant_pad_nd.default", self=source, pad=padding.as_pad(), value="float:-inf"
            )
            source, before = "%" + padded.name, [padded]
        if not any(op.outputs[1:]):
            return *before, changed(op, self=source, padding=list(padding.own), ceil_mode=False)
        starts = [have[0][0] if have else 0 for have in ins]
        args = {
            "input": source,
            "kernel": [w.kernel for w in windows],
            "stride": [w.stride for w in windows],
            "padding": list(padding.own),
            "dilation": [w.dilation for w in windows],
            "first": [start - left for start, (left, _) in zip(starts, padding.explicit, strict=True)],
            "whole": [w.num_in for w in windows],
        }
        return *before, changed(op, "trine.max_windows", args)

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs

    def kept_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """Where each maximum was, as 64-bit numbers."""
        return 8 * sum(num(name) for name in op.outputs[:1] if name is not None)


@register
class MaxUnpool(Family):
    """Maxima back in their places: batch and channel by rows; a place may be anywhere in the plane."""

    names = ("max_unpool2d", "max_unpool3d")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, num = shape(op, tensors, "self"), num_spatial(op)
        return rows(op, range(len(here) - num), here, "self", "indices")

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[1:]


@register
class AveragePool(WindowPool):
    """Means; the divisor counts what the window of the whole input counts."""

    names = ("avg_pool1d", "avg_pool2d", "avg_pool3d")

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, windows = piece.op, geometry(piece.op, piece.tensors)
        num = len(windows)
        ins, outs = piece.in_boxes[0][-num:], piece.out_boxes[0][-num:]
        if is_whole_space(windows, ins, outs):
            return (op,)
        padding = padding_of(windows, ins, outs, limits(windows, ins))
        counts = [divisors(op, w, part) for w, part in zip(windows, outs, strict=True)]
        if op.args.get("divisor_override"):
            counts = [[op.args["divisor_override"]] if i == 0 else [1] for i in range(num)]
        source, before = op.args["self"], list[Operator]()
        if not padding.is_own:
            padded = step(op, "pad", "aten.constant_pad_nd.default", self=source, pad=padding.as_pad(), value=0)
            source, before = "%" + padded.name, [padded]
        args = {
            "input": source,
            "kernel": [w.kernel for w in windows],
            "stride": [w.stride for w in windows],
            "padding": list(padding.own),
            "counts": [c[:1] if len(set(c)) == 1 else c for c in counts],
        }
        return *before, changed(op, "trine.average_windows", args)


def divisors(op: Operator, window: Window, part: Part) -> list[int]:
    """How many indices each output of the part averages along one dimension, as PyTorch counts them."""
    result = []
    for o in indices(part).tolist():
        low = o * window.stride - window.pad
        high = min(low + window.kernel, window.num_in + window.pad)
        if not op.args["count_include_pad"]:
            low, high = max(low, 0), min(high, window.num_in)
        result.append(high - low)
    return result


@register
class AdaptiveAveragePool(Family):
    """Means over bins.  One bin is a partial sum, as many bins as inputs are rows, anything else is a table."""

    names = (
        "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made, num = shape(op, tensors, "self"), output(op, tensors), num_spatial(op)
        result = list(around(op, tensors, num))
        for dim in range(len(here) - num, len(here)):
            if made[dim] == 1 and here[dim] > 1:
                result.append(Rule("contraction", here[dim], cut(op, "self", dim), (), "sum"))
            elif made[dim] > 1:
                relation = bins(here[dim], made[dim])
                result.append(Rule("space", made[dim], cut(op, "self", dim, relation), ((0, dim),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        here, made = shape(piece.op, piece.tensors, "self"), output(piece.op, piece.tensors)
        num, rank = num_spatial(piece.op), len(here)
        space = range(rank - num, rank)
        if all(piece.in_boxes[0][d] == full(here)[d] and piece.out_boxes[0][d] == full(made)[d] for d in space):
            return (piece.op,)
        source, steps = piece.op.args["self"], []
        sums = [d for d in space if made[d] == 1]
        if sums:
            count = 1
            for d in sums:
                count *= here[d]
            args: dict[str, Any] = {"dims": sums, "keepdim": True, "count": count}
            steps.append(step(piece.op, "mean", "trine.mean_part", input=source, **args))
            source = "%" + steps[-1].name
        for d in space:
            if made[d] not in (1, here[d]):
                matrix = bin_matrix(bins(here[d], made[d]), piece.in_boxes[0][d], piece.out_boxes[0][d])
                steps.append(step(piece.op, f"dim{d}", "trine.linear_map", input=source, dim=d, matrix=matrix))
                source = "%" + steps[-1].name
        if not steps:
            return (changed(piece.op, "aten.alias.default", {"self": source}),)
        return *steps[:-1], changed(piece.op, steps[-1].target, steps[-1].args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return float(volume(in_boxes[0]))

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


def num_spatial(op: Operator) -> int:
    """How many dimensions the pool goes over."""
    return int(op.base.partition("pool")[2][0])


def bins(num_in: int, num_out: int) -> Relation:
    """Bins of an adaptive pool along one dimension."""
    if num_in == num_out:
        return SAME
    lows = tuple(o * num_in // num_out for o in range(num_out))
    highs = tuple(-(-(o + 1) * num_in // num_out) for o in range(num_out))
    return Table(lows, highs, num_in)


def bin_matrix(relation: Relation, have: Part, make: Part) -> list[list[float]]:
    """Weights [output, input] of the means, for packed tiles."""
    matrix = []
    for o in indices(make).tolist():
        row = [0.0] * size(have)
        need = relation.needs(((o, o + 1),))
        for low, high in within(need, have):
            row[low:high] = [1.0 / size(need)] * (high - low)
        matrix.append(row)
    return matrix
