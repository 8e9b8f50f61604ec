"""Linear resampling and pixel shuffling: each spatial dimension reads its own few inputs."""

from collections.abc import Sequence
from math import floor

import numpy as np

from trine.graph.graph import Operator
from trine.graph.part import Box, Part, full, indices, size, volume
from trine.operators.arguments import SAME, changed, output, outputs_along, step, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Scaled, Table
from trine.operators.taking import scale_factors

Taps = list[tuple[int, int, float]]  # for each output: lower input, upper input, weight of the upper one


def linear_taps(num_in: int, num_out: int, scale: float | None, *, corners: bool) -> Taps:
    """Which two inputs each output of a linear resampling reads, in float32 as PyTorch computes them."""
    if corners:
        ratio = np.float32(num_in - 1) / np.float32(num_out - 1) if num_out > 1 else np.float32(0)
    else:
        ratio = np.float32(1.0 / scale) if scale else np.float32(num_in) / np.float32(num_out)
    half, zero, result = np.float32(0.5), np.float32(0), Taps()
    for o in range(num_out):
        place = ratio * np.float32(o) if corners else max(ratio * (np.float32(o) + half) - half, zero)
        low = min(floor(place), num_in - 1)
        share = min(max(float(place - np.float32(low)), 0.0), 1.0) if low < num_in - 1 else 0.0
        result.append((low, low + 1, share) if share else (low, low, 0.0))
    return result


@register
class LinearUpsampling(Family):
    """Every output mixes two inputs along each spatial dimension."""

    names = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")

    def taps(self, op: Operator, tensors: Tensors) -> dict[int, Taps]:
        """The inputs that each output reads, for each spatial dimension."""
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        num, corners = len(here) - 2, bool(op.args["align_corners"])
        scales = scale_factors(op, num)
        return {i + 2: linear_taps(here[i + 2], made[i + 2], scales[i], corners=corners) for i in range(num)}

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made, taps = tensors[op.inputs[0]].shape, output(op, tensors), self.taps(op, tensors)
        result = []
        for d, length in enumerate(made):
            relation = SAME if d not in taps else _table(taps[d], here[d])
            if length > 1:
                result.append(Rule("space" if d in taps else "row", length, (Cut(0, d, relation),), ((0, d),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, have, make = piece.op, piece.in_boxes[0], piece.out_boxes[0]
        here, made = piece.tensors[op.inputs[0]].shape, output(op, piece.tensors)
        taps = self.taps(op, piece.tensors)
        if all(have[d] == full(here)[d] and make[d] == full(made)[d] for d in taps):
            return (op,)
        source, steps = "%" + op.inputs[0], []
        for dim, rows in taps.items():
            matrix = _matrix(rows, have[dim], make[dim])
            steps.append(step(op, f"dim{dim}", "trine.linear_map", input=source, dim=dim, matrix=matrix))
            source = "%" + steps[-1].name
        return *steps[:-1], changed(op, steps[-1].target, steps[-1].args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 8.0 * volume(out_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


def _table(taps: Taps, num_in: int) -> Table:
    return Table(tuple(low for low, _, _ in taps), tuple(high + 1 for _, high, _ in taps), num_in)


def _matrix(taps: Taps, have: Part, make: Part) -> list[list[float]]:
    """Weights [output, input] for packed tiles."""
    place = {index: at for at, index in enumerate(indices(have).tolist())}
    matrix = []
    for o in indices(make).tolist():
        low, high, share = taps[o]
        row = [0.0] * size(have)
        row[place[low]] += 1.0 - share
        row[place[high]] += share
        matrix.append(row)
    return matrix


@register
class PixelShuffle(Family):
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

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


@register
class RepeatInterleave(Family):
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

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()
