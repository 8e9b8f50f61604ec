"""Group and instance norm whose space is cut: each tile makes (mean, M2) of every sample and group, Chan's formula
merges them.  Where only samples or whole groups are cut, the norm runs as it is (see ``norm.py``)."""

from collections.abc import Sequence

from trine.graph.graph import Operator, Tensor, wide
from trine.graph.part import Box, size, volume
from trine.operators.arguments import changed, cut, shape
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Same, Scaled
from trine.operators.sequential import AxisCut, Rewrite, Rewriter, counts, rewrites


@rewrites("aten.group_norm.default", "aten.instance_norm.default")
class GroupStatistics(Rewriter):
    """An instance norm is a group norm with one channel a group; one that keeps running statistics runs whole."""

    def lead(self, op: Operator, tensors: Tensors, cuts: Sequence[AxisCut], local: Sequence[bool]) -> list[int] | None:
        if op.base == "instance_norm" and op.args["running_mean"] is not None:
            return None
        sizes = [len(cut[1]) if cut is not None and cut[0] > 1 else 1 for cut in cuts]
        return sizes if any(n > 1 for n in sizes) else None

    def apply(self, op: Operator, tensors: Tensors, lead: Sequence[int], cuts: Sequence[AxisCut]) -> Rewrite:
        x = tensors[op.args["input"][1:]]
        groups = op.args["num_groups"] if op.base == "group_norm" else x.shape[1]
        each = x.shape[1] // groups
        dtype = wide(x.dtype)
        state = Tensor(op.name + ".state", (*lead, 2, x.shape[0], groups), dtype)
        common = {"input": op.args["input"], "groups": groups, "num_lead": len(lead)}
        first = Operator(state.name, "trine.group_norm_state", common, (state.name,), op.module, op.source)
        args = {"input": op.args["input"], "state": "%" + state.name}
        args |= {key: op.args.get(key) for key in ("weight", "bias")}
        args |= {"groups": groups, "num_lead": len(lead), "eps": op.args["eps"]}
        args |= {"counts": [n * each for n in counts(x.shape, lead, cuts, (0,))]}
        second = Operator(op.name, "trine.group_norm_apply", args, op.outputs, op.module, op.source)
        return Rewrite((first, second), (state,))


@register
class GroupNormState(Family):
    """x (N, C, …) → state (1, …, 1, 2, N, groups): mean and sum of squared distances of this tile."""

    names = ("group_norm_state",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, lead, groups = shape(op, tensors, "input"), op.args["num_lead"], op.args["groups"]
        channels = Scaled(1, here[1] // groups)
        return (
            Rule("row", here[0], (Cut(0, 0, Same()),), ((0, lead + 1),)),
            Rule("row", groups, (Cut(0, 1, channels),), ((0, lead + 2),)),
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        return (changed(piece.op, groups=size(piece.out_boxes[0][-1])),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 3.0 * volume(in_boxes[0])


@register
class GroupNormApply(Family):
    """(x, states, weight, bias) → y."""

    names = ("group_norm_apply",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, lead, groups = shape(op, tensors, "input"), op.args["num_lead"], op.args["groups"]
        each = here[1] // groups
        channel = (*cut(op, "input", 1), Cut(1, lead + 2, Scaled(each, 1)))
        channel += (*cut(op, "weight", 0), *cut(op, "bias", 0))
        return (
            Rule("row", here[0], (Cut(0, 0, Same()), Cut(1, lead + 1, Same())), ((0, 0),)),
            Rule("row", here[1], channel, ((0, 1),), multiple=each),
            *(Rule("row", n, (Cut(0, d, Same()),), ((0, d),)) for d, n in enumerate(here) if d > 1),
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        return (changed(piece.op, groups=size(piece.in_boxes[1][-1])),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:3]
