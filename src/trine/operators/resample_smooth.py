"""Cubic and antialiased resampling: every output mixes a few inputs along each spatial dimension, so a piece is a piece
of one matrix for each dimension."""

from collections.abc import Sequence
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np

from trine.graph.graph import Operator
from trine.graph.part import Box, full, volume
from trine.operators.arguments import SAME, changed, output, step
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Table
from trine.operators.taking import scale_factors


@lru_cache(maxsize=256)
def table(kind: str, num_in: int, num_out: int, scale: float | None, corners: bool) -> Table:
    """Which inputs each output reads; places are computed in the tensor's precision, so both are covered."""
    lows, highs = [num_in] * num_out, [0] * num_out
    for real in (np.float32, np.float64):
        if corners:
            ratio = real(num_in - 1) / real(num_out - 1) if num_out > 1 else real(0)
        else:
            ratio = real(1.0 / scale) if scale else real(num_in) / real(num_out)
        for o in range(num_out):
            smooth = kind.startswith("_")
            taps = _antialiased(kind, ratio, o, num_in, real) if smooth else _cubic(ratio, o, corners, real)
            read = [min(max(tap, 0), num_in - 1) for tap in taps]
            lows[o], highs[o] = min(lows[o], min(read)), max(highs[o], max(read) + 1)
    return Table(tuple(lows), tuple(highs), num_in)


def _cubic(ratio: Any, o: int, corners: bool, real: Any) -> list[int]:
    """Four neighbours of the place, or the one that it hits."""
    place = ratio * real(o) if corners else ratio * (real(o) + real(0.5)) - real(0.5)
    low = floor(place)
    return [low] if place == low else [low - 1, low, low + 1, low + 2]


def _antialiased(kind: str, ratio: Any, o: int, num_in: int, real: Any) -> list[int]:
    """Inputs under the kernel, which is as wide as the outputs are apart."""
    wide = max(ratio, real(1))
    support = (2 if "cubic" in kind else 1) * wide
    center = ratio * (real(o) + real(0.5))
    low, high = max(int(center - support + real(0.5)), 0), min(int(center + support + real(0.5)), num_in)
    taps = [tap for tap in range(low, high) if abs(tap - center + real(0.5)) / wide not in (1, 2)]
    return taps or [low]


@register
class SmoothUpsampling(Family):
    """Bicubic, and bilinear or bicubic with antialiasing."""

    names = ("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa")

    def tables(self, op: Operator, tensors: Tensors) -> dict[int, Table]:
        """What each spatial dimension reads."""
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        scales, corners = scale_factors(op, 2), bool(op.args["align_corners"])
        return {d: table(op.base, here[d], made[d], scales[d - 2], corners) for d in (2, 3)}

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made, tables = output(op, tensors), self.tables(op, tensors)
        return tuple(
            Rule("space" if d in tables else "row", made[d], (Cut(0, d, tables.get(d, SAME)),), ((0, d),))
            for d in range(4)
            if made[d] > 1
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, have, make = piece.op, piece.in_boxes[0], piece.out_boxes[0]
        here, made = piece.tensors[op.inputs[0]].shape, output(op, piece.tensors)
        if have[2:] == full(here)[2:] and make[2:] == full(made)[2:]:
            return (op,)
        scales, source, steps = scale_factors(op, 2), "%" + op.inputs[0], list[Operator]()
        for d in (2, 3):
            args: dict[str, Any] = {
                "kind": op.base, "dim": d, "num_in": here[d], "num_out": made[d], "scale": scales[d - 2],
                "corners": bool(op.args["align_corners"]),
                "have": [list(pair) for pair in have[d]], "make": [list(pair) for pair in make[d]],
            }  # fmt: skip
            steps.append(step(op, f"dim{d}", "trine.resample_smooth", input=source, **args))
            source = "%" + steps[-1].name
        return *steps[:-1], changed(op, steps[-1].target, steps[-1].args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 32.0 * volume(out_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()
