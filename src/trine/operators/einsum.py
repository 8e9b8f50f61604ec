"""Einstein sums: each letter of the result is a row, each letter that is summed away a contraction."""

from collections.abc import Sequence

from trine.graph.graph import Operator
from trine.graph.part import Box, size
from trine.operators.arguments import SAME
from trine.operators.family import Cut, Family, Rule, Tensors, register


def letters(equation: str) -> tuple[list[str], str] | None:
    """Letters of the inputs and of the result; None where the equation has dots or a letter twice in one term."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        every = "".join(terms)
        right = "".join(sorted(c for c in set(every) if every.count(c) == 1))
    if "." in left or any(len(set(term)) != len(term) for term in terms):
        return None
    return terms, right


@register
class Einsum(Family):
    """Sums of products named by letters."""

    names = ("einsum",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        found = letters(op.args["equation"])
        if found is None:
            return ()
        terms, right = found
        shapes = [tensors[name].shape for name in op.inputs]
        result = []
        for letter in dict.fromkeys("".join(terms)):
            length = max(shapes[i][term.index(letter)] for i, term in enumerate(terms) if letter in term)
            holders = [(i, term.index(letter)) for i, term in enumerate(terms) if letter in term]
            cuts = tuple(Cut(i, d, SAME) for i, d in holders if shapes[i][d] == length)
            if length == 1:
                continue
            if letter in right:
                result.append(Rule("row", length, cuts, ((0, right.index(letter)),)))
            elif len(cuts) == len(holders):
                result.append(Rule("contraction", length, cuts, (), "sum"))
        return tuple(result)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        found = letters(op.args["equation"])
        if found is None:
            return super().flops(op, in_boxes, out_boxes)
        terms = zip(found[0], in_boxes, strict=True)
        sizes = {letter: size(part) for term, box in terms for letter, part in zip(term, box, strict=True)}
        result = 2.0
        for n in sizes.values():
            result *= n
        return result
