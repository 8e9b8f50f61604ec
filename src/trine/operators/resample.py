"""Linear resampling and pixel shuffling: each spatial dimension reads its own few inputs."""

from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np

from trine.graph.graph import Operator
from trine.graph.part import Box, full, volume
from trine.operators.arguments import SAME, changed, output, outputs_along, step, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.rearrange import Rearrangement
from trine.operators.relation import Relation, Scaled, Table
from trine.operators.taking import scale_factors


def linear_table(num_in: int, num_out: int, scale: float | None, *, corners: bool) -> Table:
    """Which inputs each output of a linear resampling reads.  PyTorch computes places in the precision of the tensor;
    rounding may move one across an input, so both precisions are covered."""
    lows, highs = [num_in] * num_out, [0] * num_out
    for real in (np.float32, np.float64):
        if corners:
            ratio = real(num_in - 1) / real(num_out - 1) if num_out > 1 else real(0)
        else:
            ratio = real(1.0 / scale) if scale else real(num_in) / real(num_out)
        for o in range(num_out):
            place = ratio * real(o) if corners else max(ratio * (real(o) + real(0.5)) - real(0.5), real(0))
            low = min(floor(place), num_in - 1)
            high = low + 1 if place > low and low < num_in - 1 else low
            lows[o], highs[o] = min(lows[o], low), max(highs[o], high + 1)
    return Table(tuple(lows), tuple(highs), num_in)


@register
class LinearUpsampling(Family):
    """Every output mixes two inputs along each spatial dimension."""

    names = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        scales, corners = scale_factors(op, len(here) - 2), bool(op.args["align_corners"])
        result = []
        for d, length in enumerate(made):
            relation: Relation = SAME
            if d >= 2:
                relation = linear_table(here[d], length, scales[d - 2], corners=corners)
            if length > 1:
                result.append(Rule("space" if d >= 2 else "row", length, (Cut(0, d, relation),), ((0, d),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, have, make = piece.op, piece.in_boxes[0], piece.out_boxes[0]
        here, made = piece.tensors[op.inputs[0]].shape, output(op, piece.tensors)
        if have[2:] == full(here)[2:] and make[2:] == full(made)[2:]:
            return (op,)
        scales = scale_factors(op, len(here) - 2)
        source, steps = "%" + op.inputs[0], list[Operator]()
        for d in range(2, len(here)):
            args: dict[str, Any] = {
                "dim": d, "num_in": here[d], "num_out": made[d], "scale": scales[d - 2],
                "corners": op.args["align_corners"],
                "have": [list(pair) for pair in have[d]], "make": [list(pair) for pair in make[d]],
            }  # fmt: skip
            steps.append(step(op, f"dim{d}", "trine.resample_linear", input=source, **args))
            source = "%" + steps[-1].name
        return *steps[:-1], changed(op, steps[-1].target, steps[-1].args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 8.0 * volume(out_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


@register
class PixelShuffle(Rearrangement):
    """[..., channels · r², h, w] → [..., channels, h · r, w · r]; pieces are cut on multiples of r."""

    names = ("pixel_shuffle",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made, r = output(op, tensors), int(op.args["upscale_factor"])
        rank, result = len(made), []
        for d, length in enumerate(made):
            multiple = r if d >= rank - 2 else 1
            relation = Scaled(r, 1) if d >= rank - 2 else Scaled(1, r * r) if d == rank - 3 else SAME
            if length > 1:
                result.append(Rule("row", length, (Cut(0, d, relation),), outputs_along(op, d), multiple=multiple))
        return tuple(result)


@register
class PixelUnshuffle(Rearrangement):
    """[..., channels, h · r, w · r] → [..., channels · r², h, w]; channels are cut on multiples of r²."""

    names = ("pixel_unshuffle",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made, r = output(op, tensors), int(op.args["downscale_factor"])
        rank, result = len(made), []
        for d, length in enumerate(made):
            channel, space = d == rank - 3, d >= rank - 2
            relation = Scaled(1, r) if space else Scaled(r * r, 1) if channel else SAME
            if length > 1:
                cuts, multiple = (Cut(0, d, relation),), r * r if channel else 1
                result.append(Rule("row", length, cuts, outputs_along(op, d), multiple=multiple))
        return tuple(result)


@register
class RepeatInterleave(Rearrangement):
    """Every index of a dimension several times over; pieces are cut between them."""

    names = ("repeat_interleave",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made, times, dim = output(op, tensors), op.args.get("repeats"), op.args.get("dim")
        if not isinstance(times, int) or dim is None:
            return ()
        dim, result = wrap(dim, len(made)), []
        for d, length in enumerate(made):
            repeated = d == dim and times > 1
            relation = Scaled(times, 1) if repeated else SAME
            if length > 1:
                cuts = (Cut(0, d, relation),)
                result.append(Rule("row", length, cuts, ((0, d),), multiple=times if repeated else 1))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        return (changed(piece.op, output_size=None),)
