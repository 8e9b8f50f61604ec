"""Reductions and scans along some dimensions: the others are rows; sums and means may be cut along their own too."""

from collections.abc import Sequence
from math import prod

from trine.graph.graph import Operator
from trine.graph.part import Box, size, volume
from trine.operators.arguments import SAME, changed, outputs_along, shape, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register


def reduced_dims(op: Operator, rank: int) -> tuple[int, ...]:
    """Dimensions that the operator reduces, counted from the front."""
    dims = op.args.get("dim")
    if dims is None or dims == []:
        return tuple(range(rank))
    return tuple(wrap(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims]))


class AlongDims(Family):
    """Abstract: reads one tensor, row by row along every dimension that it does not reduce."""

    def kept_rules(self, op: Operator, tensors: Tensors, *, gone: bool) -> list[Rule]:
        """Rows; ``gone``: the reduced dimensions are missing in the outputs."""
        here = tensors[op.inputs[0]].shape
        dims = reduced_dims(op, len(here))
        result = []
        for d, length in enumerate(here):
            if d not in dims and length > 1:
                made = d - sum(1 for r in dims if r < d) if gone else d
                result.append(Rule("row", length, (Cut(0, d, SAME),), outputs_along(op, made)))
        return result

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return float(volume(in_boxes[0]))


@register
class Reduction(AlongDims):
    """Reductions that are not cut along the reduced dimensions."""

    names = (
        "amax", "amin", "max", "min", "argmax", "argmin", "var", "std", "var_mean", "std_mean", "prod", "logsumexp",
        "any", "all", "median", "mode", "nanmean", "linalg_vector_norm", "norm", "count_nonzero",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        if op.args.get("dim") is None or len(op.inputs) > 1:
            return ()
        return tuple(self.kept_rules(op, tensors, gone=not op.args.get("keepdim", False)))


@register
class Scan(AlongDims):
    """Operators along one dimension that keep it."""

    names = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "topk", "argsort", "glu")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        return tuple(self.kept_rules(op, tensors, gone=False))


@register
class Sum(AlongDims):
    """Sums and means.  A reduced dimension is a contraction; a mean divides by the count of the whole."""

    names = ("sum", "mean")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        result = self.kept_rules(op, tensors, gone=not op.args.get("keepdim", False))
        for d in reduced_dims(op, len(here)):
            if here[d] > 1:
                result.append(Rule("contraction", here[d], (Cut(0, d, SAME),), (), "sum"))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, here = piece.op, shape(piece.op, piece.tensors, "self")
        dims = reduced_dims(op, len(here))
        if op.base == "sum" or all(size(piece.in_boxes[0][d]) == here[d] for d in dims):
            return (op,)
        args = {
            "input": op.args["self"],
            "dims": list(dims),
            "keepdim": op.args.get("keepdim", False),
            "count": prod(here[d] for d in dims),
            "dtype": op.args.get("dtype"),
        }
        return (changed(op, "trine.mean_part", args),)

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()
