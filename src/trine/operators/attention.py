"""Attention: batch, heads and query rows.  A query row needs every key; a causal one those up to its own number."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, full, size, volume
from trine.operators.arguments import aligned, changed, cut, outputs_along, position, shape, step
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Prefix, Scaled


def around(op: Operator, tensors: Tensors) -> tuple[list[Rule], tuple[Cut, ...]]:
    """Rules over the batch and the heads, and the cuts of query and mask by query rows."""
    query, key, value = (shape(op, tensors, name) for name in ("query", "key", "value"))
    rank, at = len(query), position(op, "attn_mask")
    mask, scores, result = [] if at is None else [at], (*query[:-1], key[-2]), list[Rule]()
    for d in range(rank - 2):
        head = rank > 3 and d == rank - 3
        cuts, multiple = list(cut(op, "query", d)), 1
        for name, here in (("key", key), ("value", value)):
            if here[d] == query[d]:
                cuts += cut(op, name, d)
            elif op.args.get("enable_gqa") and head:
                multiple = query[d] // here[d]
                cuts += cut(op, name, d, Scaled(multiple, 1))
        cuts += aligned(op, tensors, mask, scores, d)
        result.append(Rule("head" if head else "row", query[d], tuple(cuts), outputs_along(op, d), multiple=multiple))
    return result, (*cut(op, "query", rank - 2), *aligned(op, tensors, mask, scores, rank - 2))


@register
class Attention(Family):
    """query [..., heads, rows, d], key and value [..., key heads, columns, d] → [..., heads, rows, d]."""

    names = ("scaled_dot_product_attention",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        query, key, value = (shape(op, tensors, name) for name in ("query", "key", "value"))
        rank = len(query)
        if op.args["dropout_p"] or len(key) != rank or len(value) != rank:
            return ()
        result, rows = around(op, tensors)
        if op.args["is_causal"]:
            seen = Prefix(key[-2], query[-2])
            rows += (*cut(op, "key", rank - 2, seen), *cut(op, "value", rank - 2, seen))
        result.append(Rule("query", query[-2], rows, outputs_along(op, rank - 2)))
        result.append(Rule("feature", value[-1], cut(op, "value", rank - 1), ((0, rank - 1),)))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, rows = piece.op, piece.in_boxes[0][-2]
        if not op.args["is_causal"] or rows == full(shape(op, piece.tensors, "query"))[-2]:
            return (op,)
        args: dict[str, Any] = {"rows": [list(pair) for pair in rows], "num_columns": size(piece.in_boxes[1][-2])}
        mask = step(op, "mask", "trine.causal_mask", like=op.args["query"], **args)
        return mask, changed(op, attn_mask="%" + mask.name, is_causal=False)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        columns, width = size(in_boxes[1][-2]), size(in_boxes[0][-1])
        rows = volume(out_boxes[0][:-1])
        return 2.0 * rows * columns * (width + size(out_boxes[0][-1]))

    def saved(self, op: Operator) -> tuple[str, ...]:
        return (*op.inputs, *(name for name in op.outputs[:1] if name is not None))
