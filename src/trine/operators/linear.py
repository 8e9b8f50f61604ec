"""Matrix products: rows, features (columns of the second factor) and the contraction between them."""

from collections.abc import Sequence

from trine.graph.graph import Operator
from trine.graph.part import Box, size, volume
from trine.operators.arguments import aligned, changed, cut, output, position, shape, step
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Same


@register
class Linear(Family):
    """input [..., in], weight [out, in], bias [out] → [..., out]."""

    names = ("linear",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, weight = shape(op, tensors, "input"), shape(op, tensors, "weight")
        last = len(here) - 1
        result = [Rule("row", here[d], cut(op, "input", d), ((0, d),)) for d in range(last)]
        if len(weight) == 2:
            features = (*cut(op, "weight", 0), *cut(op, "bias", 0))
            result.append(Rule("feature", weight[0], features, ((0, last),)))
        bias = tuple(c.position for c in cut(op, "bias", 0))
        summed = (*cut(op, "input", last), *cut(op, "weight", len(weight) - 1))
        result.append(Rule("contraction", here[last], summed, (), "sum", bias))
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        return (changed(piece.op, bias=None),) if piece.dropped else (piece.op,)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0]) * size(in_boxes[0][-1])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[:2]


@register
class AddMatrixProduct(Family):
    """bias [out] or [rows, out], input [rows, in], weight [in, out] → [rows, out]."""

    names = ("addmm",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        keys = _keys(op)
        first, second = shape(op, tensors, keys[1]), shape(op, tensors, keys[2])
        made, bias = (first[0], second[1]), [p for p in [position(op, keys[0])] if p is not None]
        row = (*cut(op, keys[1], 0), *aligned(op, tensors, bias, made, 0))
        column = (*cut(op, keys[2], 1), *aligned(op, tensors, bias, made, 1))
        summed = (*cut(op, keys[1], 1), *cut(op, keys[2], 0))
        result = (
            Rule("row", made[0], row, ((0, 0),)),
            Rule("feature", made[1], column, ((0, 1),)),
            Rule("contraction", first[1], summed, (), "sum", tuple(bias)),
        )
        return tuple(rule for rule in result if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        if not piece.dropped:
            return (piece.op,)
        args = {"self": piece.op.args[_keys(piece.op)[1]], "mat2": piece.op.args[_keys(piece.op)[2]]}
        product = changed(piece.op, "aten.mm.default", args)
        scale = piece.op.args.get("alpha", 1)
        if scale == 1:
            return (product,)
        name = piece.op.name + ".product"
        raw = Operator(name, product.target, args, (name,))
        return raw, changed(piece.op, "aten.mul.Scalar", {"self": "%" + name, "other": scale})

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0]) * size(in_boxes[-1][0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[-2:]


def _keys(op: Operator) -> tuple[str, str, str]:
    """Names of bias, first and second factor."""
    return ("bias", "input", "weight") if op.target.startswith("trine.") else ("self", "mat1", "mat2")


@register
class MatrixProduct(Family):
    """Products of two tensors of any rank, leading dimensions broadcast."""

    names = ("matmul", "mm", "bmm", "mv", "dot")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        a, b = (tensors[name].shape for name in op.inputs)
        made, same = output(op, tensors), Same()
        batch = max(len(a), len(b)) - 2
        result = []
        for d in range(max(batch, 0)):
            cuts = []
            for at, here in enumerate((a, b)):
                own = d - batch + len(here) - 2
                if len(here) > 2 and own >= 0 and here[own] == made[d]:
                    cuts.append(Cut(at, own, same))
            result.append(Rule("row", made[d], tuple(cuts), ((0, d),)))
        if len(a) > 1:
            dim = len(made) - (2 if len(b) > 1 else 1)
            result.append(Rule("row", a[-2], (Cut(0, len(a) - 2, same),), ((0, dim),)))
        if len(b) > 1:
            result.append(Rule("feature", b[-1], (Cut(1, len(b) - 1, same),), ((0, len(made) - 1),)))
        summed = (Cut(0, len(a) - 1, same), Cut(1, max(len(b) - 2, 0), same))
        result.append(Rule("contraction", a[-1], summed, (), "sum"))
        return tuple(rule for rule in result if rule.length > 1)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0]) * size(in_boxes[0][-1])


@register
class BatchedSum(Family):
    """self (broadcast), batch1 [batch, rows, in], batch2 [batch, in, columns] → beta · self + alpha · their product."""

    names = ("baddbmm",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        first, second = shape(op, tensors, "batch1"), shape(op, tensors, "batch2")
        made = (*first[:2], second[2])
        cuts = [
            (*cut(op, "batch1", 0), *cut(op, "batch2", 0)), cut(op, "batch1", 1), cut(op, "batch2", 2),
        ]  # fmt: skip
        kinds = ("row", "row", "feature")
        rules = [Rule(kinds[d], made[d], (*cuts[d], *aligned(op, tensors, (0,), made, d)), ((0, d),)) for d in range(3)]
        summed = (*cut(op, "batch1", 2), *cut(op, "batch2", 1))
        rules.append(Rule("contraction", first[2], summed, (), "sum", (0,)))
        return tuple(rule for rule in rules if rule.length > 1)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        if not piece.dropped:
            return (piece.op,)
        op, scale = piece.op, piece.op.args.get("alpha", 1)
        args = {"self": op.args["batch1"], "mat2": op.args["batch2"]}
        if scale == 1:
            return (changed(op, "aten.bmm.default", args),)
        product = step(op, "product", "aten.bmm.default", **args)
        return product, changed(op, "aten.mul.Scalar", {"self": "%" + product.name, "other": scale})

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0]) * size(in_boxes[1][2])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs[1:]


@register
class Outer(Family):
    """self [rows], vec2 [columns] → their products."""

    names = ("outer", "ger")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        rules = (Rule("row", made[d], (Cut(d, 0, Same()),), ((0, d),)) for d in range(2))
        return tuple(rule for rule in rules if rule.length > 1)
