"""Lookups: embedding, gather, index_select and indexing by tensors."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator, is_ref
from trine.graph.part import Box, Part, span
from trine.operators.arguments import SAME, aligned, changed, cut, output, shape, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register


class Lookup(Family):
    """Abstract: no arithmetic; the indices are kept."""

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[1:]


@register
class Embedding(Lookup):
    """weight [words, features], indices [...] → [..., features]; cut along the words it is a partial sum."""

    names = ("embedding",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        weight, where = shape(op, tensors, "weight"), shape(op, tensors, "indices")
        result = [Rule("row", where[d], cut(op, "indices", d), ((0, d),)) for d in range(len(where))]
        result.append(Rule("feature", weight[1], cut(op, "weight", 1), ((0, len(where)),)))
        result.append(Rule("contraction", weight[0], cut(op, "weight", 0), (), "sum"))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, words = piece.op, piece.in_boxes[0][0]
        if words == span(0, shape(op, piece.tensors, "weight")[0]):
            return (op,)
        args: dict[str, Any] = {key: op.args[key] for key in ("weight", "indices", "padding_idx")}
        return (changed(op, "trine.embedding_part", args, words=[list(pair) for pair in words]),)


@register
class Gather(Lookup):
    """self, dim, index → shape of the index; along ``dim`` self is needed whole."""

    names = ("gather",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, where = shape(op, tensors, "self"), shape(op, tensors, "index")
        dim, result = wrap(op.args["dim"], len(here)) if here else 0, []
        for d, length in enumerate(where):
            cuts = (*(cut(op, "self", d) if d != dim else ()), *cut(op, "index", d))
            if length > 1:
                result.append(Rule("row", length, cuts, ((0, d),)))
        return tuple(result)

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        here, where = shape(op, tensors, "self"), shape(op, tensors, "index")
        dim = wrap(op.args["dim"], len(here)) if here else 0
        return {(0, d): span(0, where[d]) for d in range(len(here)) if d != dim and where[d] < here[d]}


@register
class IndexSelect(Lookup):
    """self, dim, index [n] → self with n rows along ``dim``."""

    names = ("index_select",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        dim = wrap(op.args["dim"], len(made)) if made else 0
        return tuple(
            Rule("row", made[d], cut(op, "index", 0) if d == dim else cut(op, "self", d), ((0, d),))
            for d in range(len(made))
            if made[d] > 1
        )


@register
class Index(Lookup):
    """Integer tensors that index neighbouring dimensions; these are needed whole, their broadcast shape takes their
    place."""

    names = ("index", "_unsafe_index")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        used = [d for d, ref in enumerate(op.args["indices"]) if is_ref(ref)]
        lists = [tensors[name] for name in op.inputs[1:]]
        if used != list(range(used[0], used[0] + len(used))) or any(t.dtype in ("bool", "uint8") for t in lists):
            return ()
        first, num = used[0], max(len(t.shape) for t in lists)
        middle, result = made[first : first + num], []
        for d, length in enumerate(made):
            if first <= d < first + num:
                cuts = aligned(op, tensors, range(1, len(op.inputs)), middle, d - first)
            else:
                cuts = (Cut(0, d if d < first else d - num + len(used), SAME),)
            if length > 1:
                result.append(Rule("row", length, cuts, ((0, d),)))
        return tuple(result)
