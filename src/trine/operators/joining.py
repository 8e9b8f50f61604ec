"""Joining and taking apart: cat, stack, split, slice, select, pad."""

from collections.abc import Sequence
from typing import Any

from trine.graph.graph import Operator
from trine.graph.part import Box, Part, intersect, size, span, volume, within
from trine.operators.arguments import SAME, alias, changed, out_box, output, outputs_along, shape, step, wrap
from trine.operators.family import Cut, Local, Rule, Tensors, register
from trine.operators.rearrange import Rearrangement
from trine.operators.relation import Permuted, Regroup, Relation, Shift


@register
class Concatenation(Rearrangement):
    """Inputs one after the other along a dimension; along the others they are rows."""

    names = ("cat", "concat", "concatenate")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        along, offset = wrap(op.args["dim"], len(made)), 0
        inputs = [(at, tensors[name].shape) for at, name in enumerate(op.inputs)]
        inputs = [(at, here) for at, here in inputs if len(here) == len(made)]  # an old-style empty one has rank 1
        joined = []
        for at, here in inputs:
            joined.append(Cut(at, along, Shift(offset, here[along], made[along])))
            offset += here[along]
        result, types = [], {tensors[name].dtype for name in op.inputs}
        for d, length in enumerate(made):
            cuts = joined if d == along else [Cut(at, d, SAME) for at, _ in inputs]
            if length > 1 and (d != along or len(types) == 1):  # a piece of one input alone would be of its type
                result.append(Rule("row", length, tuple(cuts), ((0, d),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        items = zip(piece.op.args["tensors"], piece.in_boxes, strict=True)
        kept = [ref for ref, box in items if volume(box)]
        return (alias(piece.op, kept[0]) if len(kept) == 1 else changed(piece.op, tensors=kept),)


@register
class Stack(Rearrangement):
    """Inputs side by side in a new dimension, which is not cut."""

    names = ("stack",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        along = wrap(op.args["dim"], len(made))
        return tuple(
            Rule("row", made[d], tuple(Cut(at, d - (d > along), SAME) for at in range(len(op.inputs))), ((0, d),))
            for d in range(len(made))
            if d != along and made[d] > 1
        )


@register
class Splitting(Rearrangement):
    """One output for each section of a dimension; equal sections may be cut alike."""

    names = ("split", "split_with_sizes", "chunk", "unbind", "tensor_split", "split_copy", "unbind_copy")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        along, gone = wrap(op.args["dim"], len(here)), op.base.startswith("unbind")
        result = []
        for d, length in enumerate(here):
            if d != along and length > 1:
                result.append(Rule("row", length, (Cut(0, d, SAME),), outputs_along(op, d - (gone and d > along))))
        num = len(op.outputs)
        sections = {tensors[name].shape[along] for name in op.outputs if name is not None} if not gone else {1}
        each = max(sections)
        if len(sections) == 1 and each > 1 and num * each == here[along]:
            relation = Regroup((here[along],), 0, (num, each), 1)
            result.append(Rule("row", each, (Cut(0, along, relation),), outputs_along(op, along)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, here = piece.op, shape(piece.op, piece.tensors, "self")
        if op.base.startswith("unbind"):
            return (op,)
        along = wrap(op.args["dim"], len(here))
        if piece.in_boxes[0][along] == span(0, here[along]):
            return (op,)
        each = size(piece.in_boxes[0][along]) // len(op.outputs)
        args = {"self": op.args["self"], "split_sizes": [each] * len(op.outputs), "dim": along}
        return (changed(op, "aten.split_with_sizes.default", args),)


def narrowed(op: Operator, source: str, taken: Sequence[tuple[int, Part, Part]]) -> tuple[Operator, ...]:
    """Operators that take (dimension, needed part, part that is there) from a packed tile; ``op`` comes last."""
    steps: list[Operator] = []
    for dim, need, have in taken:
        for number, (low, high) in enumerate(within(need, have) if need != have else ()):
            args: dict[str, Any] = {"self": source, "dim": dim, "start": low, "end": high, "step": 1}
            steps.append(step(op, f"take{dim}_{number}", "aten.slice.Tensor", **args))
    if not steps:
        return (alias(op, source),)
    if len(steps) == 1:
        return (changed(op, steps[0].target, steps[0].args),)
    joined = {"tensors": ["%" + s.name for s in steps], "dim": taken[0][0]}
    return *steps, changed(op, "aten.cat.default", joined)


@register
class Slice(Rearrangement):
    """A range of one dimension; the assembled tile is the answer."""

    names = ("slice", "narrow", "slice_copy", "narrow_copy")

    def relation(self, op: Operator, tensors: Tensors) -> tuple[int, Relation]:
        """The sliced dimension, and what it reads."""
        here, made = shape(op, tensors, "self"), output(op, tensors)
        dim = wrap(op.args["dim"], len(here))
        start, jump = op.args["start"] or 0, op.args.get("step", 1)
        start = min(max(wrap(start, here[dim]), 0), here[dim])
        if jump == 1:
            return dim, Shift(-start, here[dim], made[dim])
        return dim, Permuted(tuple(start + jump * i for i in range(made[dim])))

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = shape(op, tensors, "self"), output(op, tensors)
        dim, relation = self.relation(op, tensors)
        return tuple(
            Rule("row", made[d], (Cut(0, d, relation if d == dim and here != made else SAME),), ((0, d),))
            for d in range(len(here))
            if made[d] > 1
        )

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        dim, relation = self.relation(op, tensors)
        return {(0, dim): relation.needs(span(0, output(op, tensors)[dim]))}

    def local(self, piece: Local) -> tuple[Operator, ...]:
        dim, relation = self.relation(piece.op, piece.tensors)
        have, made = piece.in_boxes[0][dim], out_box(piece)[dim]
        if have == span(0, shape(piece.op, piece.tensors, "self")[dim]) and made == span(
            0, output(piece.op, piece.tensors)[dim]
        ):
            return (piece.op,)
        return narrowed(piece.op, piece.op.args["self"], [(dim, relation.needs(made), have)])


@register
class Select(Rearrangement):
    """One index of a dimension, which disappears."""

    names = ("select", "select_copy")

    def index(self, op: Operator, tensors: Tensors) -> tuple[int, int]:
        """The dimension and the index, counted from the front."""
        here = shape(op, tensors, "self")
        dim = wrap(op.args["dim"], len(here))
        return dim, wrap(op.args["index"], here[dim])

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        dim, _ = self.index(op, tensors)
        return tuple(
            Rule("row", here[d], (Cut(0, d, SAME),), ((0, d - (d > dim)),))
            for d in range(len(here))
            if d != dim and here[d] > 1
        )

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        dim, index = self.index(op, tensors)
        return {(0, dim): span(index, index + 1)}

    def local(self, piece: Local) -> tuple[Operator, ...]:
        dim, index = self.index(piece.op, piece.tensors)
        at = within(span(index, index + 1), piece.in_boxes[0][dim])[0][0]
        return (changed(piece.op, dim=dim, index=at),)


@register
class Pad(Rearrangement):
    """Padding with a constant; a piece pads only where it holds the border."""

    names = ("constant_pad_nd", "pad")

    def amounts(self, op: Operator, rank: int) -> list[tuple[int, int]]:
        """Padding before and after, for each dimension from the front."""
        pad = op.args["pad"]
        pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
        return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]

    def relations(self, op: Operator, tensors: Tensors) -> list[Relation]:
        """What each dimension reads."""
        here, made = shape(op, tensors, "self"), output(op, tensors)
        amounts = self.amounts(op, len(here))
        return [SAME if amounts[d] == (0, 0) else Shift(amounts[d][0], here[d], made[d]) for d in range(len(here))]

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        constant = op.args.get("mode", "constant") == "constant"
        unpadded = [pair == (0, 0) for pair in self.amounts(op, len(made))]
        return tuple(
            Rule("row", made[d], (Cut(0, d, relation),), ((0, d),))
            for d, relation in enumerate(self.relations(op, tensors))
            if made[d] > 1 and (constant or unpadded[d])
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, have, make = piece.op, piece.in_boxes[0], out_box(piece)
        here = shape(op, piece.tensors, "self")
        if op.args.get("mode", "constant") != "constant":
            return (op,)
        pad: list[int] = []
        relations = self.relations(op, piece.tensors)
        for d in reversed(range(len(here))):
            relation = relations[d]
            if not isinstance(relation, Shift):
                pad += [0, 0]
                continue
            first, last = relation.offset, relation.offset + relation.num_in
            left = size(intersect(make[d], span(min(0, first), first)))
            right = size(intersect(make[d], span(last, max(last, relation.num_range))))
            need = relation.needs(make[d])
            if need != have[d]:  # a negative amount takes away what is there
                before = within(need, have[d])
                left -= before[0][0] if before else size(have[d])
                right -= size(have[d]) - before[-1][1] if before else 0
            pad += [left, right]
        if not any(pad):
            return (alias(op, op.args["self"]),)
        args = {"self": op.args["self"], "pad": pad, "value": self.fill(op)}
        return (changed(op, "aten.constant_pad_nd.default", args),)

    def fill(self, op: Operator) -> Any:
        """The value to pad with."""
        value = op.args.get("value")
        return 0 if value is None else value

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0
