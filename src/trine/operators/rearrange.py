"""Views and permutations: the same elements in another order of dimensions."""

from collections.abc import Sequence
from math import prod

from trine.graph.graph import Operator
from trine.graph.part import Box, shape_of
from trine.operators.arguments import SAME, changed, is_whole, out_box, output, shape, wrap
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Regroup


class Rearrangement(Family):
    """Abstract: no arithmetic, nothing kept for the backward pass."""

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 0.0

    def saved(self, op: Operator) -> tuple[str, ...]:
        return ()


def regroupings(here: Sequence[int], made: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Smallest groups of neighbouring dimensions (of the input, of the output) with equal products."""
    groups, i, j = [], 0, 0
    while i < len(here) and j < len(made):
        ins, outs, left, right = [i], [j], here[i], made[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= here[i]
                ins.append(i)
                i += 1
            else:
                right *= made[j]
                outs.append(j)
                j += 1
        groups.append((ins, outs))
    return groups


@register
class View(Rearrangement):
    """Reshapes.  A rule for each pair of dimensions inside a group; legal only where a part maps to a box and back."""

    names = (
        "view", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "view_copy",
        "unsqueeze_copy", "squeeze_copy", "_reshape_copy",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        if "dtype" in op.args or prod(here) == 0:
            return ()
        long_in, long_out = [d for d, n in enumerate(here) if n > 1], [d for d, n in enumerate(made) if n > 1]
        result = []
        for ins, outs in regroupings([here[d] for d in long_in], [made[d] for d in long_out]):
            in_dims, out_dims = [long_in[i] for i in ins], [long_out[i] for i in outs]
            in_sizes, out_sizes = tuple(here[d] for d in in_dims), tuple(made[d] for d in out_dims)
            for i, in_dim in enumerate(in_dims):
                for j, out_dim in enumerate(out_dims):
                    plain = len(in_dims) == len(out_dims) == 1
                    relation = SAME if plain else Regroup(in_sizes, i, out_sizes, j)
                    result.append(Rule("row", made[out_dim], (Cut(0, in_dim, relation),), ((0, out_dim),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        if is_whole(piece):
            return (piece.op,)
        key = next(iter(piece.op.args))
        args = {"self": piece.op.args[key], "shape": list(shape_of(out_box(piece)))}
        return (changed(piece.op, "aten.reshape.default", args),)


@register
class Permute(Rearrangement):
    """Dimensions in another order."""

    names = ("permute", "transpose", "t", "movedim", "swapaxes", "permute_copy", "transpose_copy", "numpy_T")

    def order(self, op: Operator, rank: int) -> tuple[int, ...]:
        """Input dimension of each output dimension."""
        if op.base.startswith("permute"):
            return tuple(wrap(d, rank) for d in op.args["dims"])
        result = list(range(rank))
        if op.base in ("t", "numpy_T"):
            return tuple(reversed(result))
        if op.base == "movedim":
            sources = [wrap(d, rank) for d in _dims(op.args["source"])]
            goals = [wrap(d, rank) for d in _dims(op.args["destination"])]
            free = iter([d for d in result if d not in sources])
            return tuple(sources[goals.index(d)] if d in goals else next(free) for d in range(rank))
        one, two = (wrap(op.args[key], rank) for key in list(op.args)[1:3])
        result[one], result[two] = two, one
        return tuple(result)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here = shape(op, tensors, "self")
        return tuple(
            Rule("row", here[source], (Cut(0, source, SAME),), ((0, d),))
            for d, source in enumerate(self.order(op, len(here)))
            if here[source] > 1
        )


def _dims(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


@register
class Expand(Rearrangement):
    """Broadcasting: an expanded dimension reads its input whole."""

    names = ("expand", "expand_copy", "broadcast_to", "expand_as")

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        result = []
        for d in range(len(made)):
            own = d - len(made) + len(here)
            cuts = (Cut(0, own, SAME),) if own >= 0 and here[own] == made[d] else ()
            if made[d] > 1:
                result.append(Rule("row", made[d], cuts, ((0, d),)))
        return tuple(result)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        args = {"self": piece.op.args["self"], "size": list(shape_of(out_box(piece)))}
        return (changed(piece.op, "aten.expand.default", args),)
