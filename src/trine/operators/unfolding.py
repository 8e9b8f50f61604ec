"""Windows laid out side by side (unfold, im2col) and added up again (fold, col2im).  The places of windows are numbered
row by row, so a cut of the height cuts them by whole rows."""

from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Part, full, merge, size
from trine.operators.arguments import SAME, changed, cut, output, shape, spread, step, wrap
from trine.operators.family import Local, Rule, Tensors, register
from trine.operators.rearrange import Rearrangement
from trine.operators.relation import Blocks, InBlocks, Scaled, Transposed, Window
from trine.operators.window import padding_of


def geometry(op: Operator, plane: tuple[int, ...]) -> tuple[Window, Window]:
    """The window of height and width over a plane."""
    keys = ("kernel_size", "stride", "dilation", "padding")
    kernel, stride, dilation, pad = (spread(op.args[key], 2) for key in keys)
    counts = [(plane[i] + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    high, wide = (Window(kernel[i], stride[i], dilation[i], pad[i], plane[i], counts[i]) for i in range(2))
    return high, wide


def rows_of(part: Part, width: int) -> Part:
    """Rows of a part that is made of whole rows."""
    return merge((low // width, high // width) for low, high in part)


@register
class Windows(Rearrangement):
    """[batch, channels, height, width] → [batch, channels · kernel, places]."""

    names = ("im2col",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = shape(op, tensors, "self"), output(op, tensors)
        if len(here) != 4:
            return ()
        high, wide = geometry(op, here[2:])
        taps = high.kernel * wide.kernel
        place = Blocks(high, wide.num_range)
        result = (
            Rule("row", made[0], cut(op, "self", 0)),
            Rule("row", made[1], cut(op, "self", 1, Scaled(taps, 1)), ((0, 1),), multiple=taps),
            Rule("space", made[2], cut(op, "self", 2, place), ((0, 2),), multiple=wide.num_range),
        )
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, here = piece.op, shape(piece.op, piece.tensors, "self")
        high, wide = geometry(op, here[2:])
        make = rows_of(piece.out_boxes[0][2], wide.num_range)
        have = piece.in_boxes[0][2]
        if have == full(here)[2] and make == full([high.num_range])[0]:
            return (op,)
        pad = padding_of([high], [have], [make], [0]).as_pad(1)
        padded = step(op, "pad", "aten.constant_pad_nd.default", self=op.args["self"], pad=pad, value=0)
        return padded, changed(op, self="%" + padded.name, padding=[0, wide.pad])


@register
class Folding(Rearrangement):
    """[batch, channels · kernel, places] → [batch, channels, height, width], overlaps added."""

    names = ("col2im",)

    def relation(self, op: Operator) -> tuple[Transposed, int]:
        """What rows of the plane read of rows of windows, and how many windows lie in one row."""
        high, wide = geometry(op, tuple(op.args["output_size"]))
        rows = Transposed(high.kernel, high.stride, high.dilation, high.pad, high.num_range, high.num_in)
        return rows, wide.num_range

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = shape(op, tensors, "self"), output(op, tensors)
        if len(here) != 3:
            return ()
        rows, width = self.relation(op)
        taps = here[1] // made[1]
        result = (
            Rule("row", made[0], cut(op, "self", 0)),
            Rule("row", made[1], cut(op, "self", 1, Scaled(1, taps)), ((0, 1),)),
            Rule("space", made[2], cut(op, "self", 2, InBlocks(rows, width)), ((0, 2),)),
        )
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, made = piece.op, output(piece.op, piece.tensors)
        rows, width = self.relation(op)
        have, make = rows_of(piece.in_boxes[0][2], width), piece.out_boxes[0][2]
        if size(have) == rows.num_in and make == full(made)[2]:
            return (op,)
        first = have[0][0] * rows.stride - rows.pad
        reach = (size(have) - 1) * rows.stride + rows.dilation * (rows.kernel - 1) + 1
        pad = spread(op.args["padding"], 2)
        args: dict[str, Any] = {**op.args, "output_size": [reach, made[3]], "padding": [0, pad[1]]}
        spread_out = step(op, "spread", op.target, **args)
        crop = [0, 0, first - make[0][0], make[-1][1] - first - reach]
        return spread_out, changed(
            op, "aten.constant_pad_nd.default", {"self": "%" + spread_out.name, "pad": crop, "value": 0}
        )


@register
class Unfold(Rearrangement):
    """One dimension seen as windows, whose elements are a new last dimension."""

    names = ("unfold",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = shape(op, tensors, "self"), output(op, tensors)
        if not here:
            return ()
        dim = wrap(op.args["dimension"], len(here))
        window = Window(op.args["size"], op.args["step"], 1, 0, here[dim], made[dim])
        return tuple(
            Rule("space" if d == dim else "row", made[d], cut(op, "self", d, window if d == dim else SAME), ((0, d),))
            for d in range(len(here))
            if made[d] > 1
        )

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        here, made = shape(op, tensors, "self"), output(op, tensors)
        if not here:
            return {}
        dim = wrap(op.args["dimension"], len(here))
        last = (made[dim] - 1) * op.args["step"] + op.args["size"]
        return {(0, dim): ((0, last),)} if last < here[dim] else {}
