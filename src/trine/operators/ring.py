"""Ring attention: keys and values go round in blocks, so that in inference no engine need hold all of them (in training
each block is kept for the backward pass).

The attention of an axis that cuts query rows becomes one operator for each block and a merge.  In operator j the engine
at coordinate c has the keys of coordinate c + j; its result is (sums of weighted values, largest score, sum of
weights), and these are merged as softmax is: m = max m_j, o = Σ o_j e^(m_j − m) / Σ l_j e^(m_j − m).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trine.graph.graph import Operator, Tensor, wide
from trine.graph.part import Box, Part, even, size, volume
from trine.operators.arguments import changed, cut, output, outputs_along, shape
from trine.operators.attention import around
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Relation, Same
from trine.operators.sequential import AxisCut, Rewrite

Lists = list[list[list[int]]]


@dataclass(frozen=True)
class Rotated(Relation):
    """The query rows of coordinate c read the keys of coordinate c + shift."""

    queries: tuple[Part, ...]
    keys: tuple[Part, ...]
    shift: int

    def needs(self, part: Part) -> Part:
        if part not in self.queries:  # of all rows
            return ((0, max(high for key in self.keys for _, high in key)),)
        return self.keys[(self.queries.index(part) + self.shift) % len(self.keys)]

    def follow(self, part: Part) -> Part:
        place = self.keys.index(part) if part in self.keys else 0
        return self.queries[(place - self.shift) % len(self.queries)]


def ring(op: Operator, tensors: Tensors, cuts: Sequence[AxisCut]) -> Rewrite | None:
    """The operators of a ring; None where the query rows are not cut by exactly one axis, or weights are dropped."""
    query, key, value = (tensors[op.args[name][1:]] for name in ("query", "key", "value"))
    rank = len(query.shape)
    axes = [cut for cut in cuts if cut is not None and cut[0] == rank - 2]
    if len(axes) != 1 or op.args["dropout_p"] or {len(key.shape), len(value.shape)} != {rank}:
        return None
    queries = axes[0][1]
    if not all(queries) or len(set(queries)) < len(queries):
        return None
    keys = queries if key.shape[-2] == query.shape[-2] else even(key.shape[-2], [size(part) for part in queries])
    made = tensors[next(name for name in op.outputs if name is not None)]
    operators, fresh = list[Operator](), list[Tensor]()
    dtype = wide(made.dtype)
    kept = ("query", "key", "value", "attn_mask", "is_causal", "scale", "enable_gqa")
    for shift in range(len(queries)):
        names = tuple(f"{op.name}.{word}{shift}" for word in ("values", "largest", "weights"))
        args: dict[str, Any] = {name: op.args.get(name) for name in kept}
        args |= {"queries": _lists(queries), "keys": _lists(keys), "shift": shift}
        operators.append(Operator(names[0], "trine.attention_block", args, names, op.module, op.source))
        shapes = (made.shape, made.shape[:-1], made.shape[:-1])
        fresh += [Tensor(name, here, dtype) for name, here in zip(names, shapes, strict=True)]
    merge: dict[str, Any] = {
        word: [f"%{op.name}.{word}{shift}" for shift in range(len(queries))]
        for word in ("values", "largest", "weights")
    }
    merge["dtype"] = f"dtype:{made.dtype}"
    operators.append(Operator(op.name, "trine.attention_merge", merge, op.outputs, op.module, op.source))
    return Rewrite(tuple(operators), tuple(fresh))


def _lists(parts: Sequence[Part]) -> Lists:
    return [[list(pair) for pair in part] for part in parts]


def _parts(lists: Lists) -> tuple[Part, ...]:
    return tuple(tuple((low, high) for low, high in part) for part in lists)


@register
class AttentionBlock(Family):
    """query, one block of key and value → (sums of weighted values, largest scores, sums of weights)."""

    names = ("attention_block",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        query = shape(op, tensors, "query")
        rank = len(query)
        result, rows = around(op, tensors)
        turned = Rotated(_parts(op.args["queries"]), _parts(op.args["keys"]), op.args["shift"])
        rows += (*cut(op, "key", rank - 2, turned), *cut(op, "value", rank - 2, turned))
        result.append(Rule("query", query[-2], rows, outputs_along(op, rank - 2)))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        dropped = ("queries", "keys", "shift")
        args = {name: value for name, value in piece.op.args.items() if name not in dropped}
        rows, columns = piece.in_boxes[0][-2], piece.in_boxes[1][-2]
        places = {"rows": [list(pair) for pair in rows], "columns": [list(pair) for pair in columns]}
        return (changed(piece.op, args={**args, **places}),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        rows, columns = volume(in_boxes[0][:-1]), size(in_boxes[1][-2])
        if in_boxes[1][-2] == ((0, max(high for part in op.args["keys"] for _, high in part)),):
            columns //= len(op.args["keys"])  # the whole operator is one block for each engine
        return 2.0 * rows * columns * (size(in_boxes[0][-1]) + size(in_boxes[2][-1]))

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs


@register
class AttentionMerge(Family):
    """The states of all blocks → the attention's output."""

    names = ("attention_merge",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made, num = output(op, tensors), len(op.inputs) // 3
        every, same = range(3 * num), Same()
        rules = [Rule("row", made[d], tuple(Cut(i, d, same) for i in every), ((0, d),)) for d in range(len(made) - 1)]
        return tuple(rule for rule in rules if rule.length > 1)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return float(len(op.inputs) * volume(out_boxes[0]))
