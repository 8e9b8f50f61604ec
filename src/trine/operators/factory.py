"""Tensors made from nothing: filled ones are cut along any dimension, counted ones run whole."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, Part, shape_of
from trine.operators.arguments import changed, is_whole, output
from trine.operators.family import Family, Local, Rule, Tensors, register

FILL = {"zeros": 0, "ones": 1, "empty": 0}


@register
class Filled(Family):
    """One value everywhere.  A tensor that only lends its type is not read."""

    names = (
        "full", "zeros", "ones", "empty", "new_full", "new_zeros", "new_ones", "new_empty",
        "full_like", "zeros_like", "ones_like", "empty_like",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        return tuple(Rule("row", made[d], (), ((0, d),)) for d in range(len(made)) if made[d] > 1)

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        return {(0, d): () for d in range(len(tensors[op.inputs[0]].shape))} if op.inputs else {}

    def local(self, piece: Local) -> tuple[Operator, ...]:
        if is_whole(piece):
            return (piece.op,)
        op = piece.op
        kind = op.base.removeprefix("new_").removesuffix("_like")
        kept = ("dtype", "layout", "device", "pin_memory")
        args: dict[str, Any] = {key: op.args[key] for key in kept if key in op.args}
        args |= {"size": list(shape_of(piece.out_boxes[0])), "fill_value": op.args.get("fill_value", FILL.get(kind))}
        if op.inputs:
            return (changed(op, "aten.new_full.default", {"self": "%" + op.inputs[0], **args}),)
        name = kind if kind != "empty" else "zeros"
        if name != "full":
            del args["fill_value"]
        return (changed(op, f"aten.{name}.default", args),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


@register
class Counted(Family):
    """Numbers that depend on their place, and scalars: they run whole."""

    names = ("arange", "linspace", "scalar_tensor", "tensor", "eye", "tril_indices", "triu_indices")

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0
