"""Operators whose output is the input at other indices, dimension by dimension: flip, roll, repeat, reflecting pads,
nearest upsampling.  The indices are known when the model is captured."""

from math import floor

import numpy as np

from trine.graph.graph import Operator
from trine.graph.part import indices, size
from trine.operators.arguments import SAME, alias, changed, is_whole, out_box, output, step, wrap
from trine.operators.family import Cut, Local, Rule, Tensors, register
from trine.operators.rearrange import Rearrangement
from trine.operators.relation import Permuted

Sources = dict[int, tuple[int, ...]]


class Taking(Rearrangement):
    """Abstract: ``sources`` lists, for each dimension that changes, the input index of each output index."""

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        """Input indices along each dimension that changes; None if this operator cannot be told so."""
        raise NotImplementedError

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, made, sources = tensors[op.inputs[0]].shape, output(op, tensors), self.sources(op, tensors)
        if sources is None or len(here) != len(made):
            return ()
        return tuple(
            Rule("row", made[d], (Cut(0, d, Permuted(sources[d]) if d in sources else SAME),), ((0, d),))
            for d in range(len(made))
            if made[d] > 1
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op, have, make, sources = piece.op, piece.in_boxes[0], out_box(piece), self.sources(piece.op, piece.tensors)
        if is_whole(piece) or sources is None:
            return (op,)
        source, steps = "%" + op.inputs[0], list[Operator]()
        for dim, wanted in sources.items():
            places = np.searchsorted(indices(have[dim]), np.asarray(wanted, np.int64)[indices(make[dim])])
            if places.tolist() != list(range(size(have[dim]))):
                steps.append(step(op, f"take{dim}", "trine.take_list", input=source, dim=dim, index=places.tolist()))
                source = "%" + steps[-1].name
        if not steps:
            return (alias(op, source),)
        return *steps[:-1], changed(op, steps[-1].target, steps[-1].args)


@register
class Flip(Taking):
    """Dimensions backwards."""

    names = ("flip",)

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        made = output(op, tensors)
        dims = [wrap(d, len(made)) for d in op.args["dims"]]
        return {d: tuple(range(made[d] - 1, -1, -1)) for d in dims}


@register
class Roll(Taking):
    """Dimensions shifted around."""

    names = ("roll",)

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        made, dims = output(op, tensors), op.args.get("dims")
        shifts = op.args["shifts"]
        if not dims:
            return None
        result: Sources = {}
        dims = dims if isinstance(dims, (list, tuple)) else [dims]
        shifts = shifts if isinstance(shifts, (list, tuple)) else [shifts]
        for shift, dim in zip(shifts, (wrap(d, len(made)) for d in dims), strict=True):
            before = result.get(dim, tuple(range(made[dim])))
            result[dim] = tuple(before[(i - shift) % made[dim]] for i in range(made[dim]))
        return result


@register
class Repeat(Taking):
    """The tensor tiled along its dimensions."""

    names = ("repeat",)

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        if len(here) != len(made):
            return None
        return {d: tuple(i % here[d] for i in range(made[d])) for d in range(len(made)) if here[d] != made[d]}


@register
class BorderPad(Taking):
    """Padding by reflected, repeated or wrapped elements."""

    names = tuple(f"{kind}_pad{num}d" for kind in ("reflection", "replication") for num in (1, 2, 3))

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        here = tensors[op.inputs[0]].shape
        pad, result = op.args["padding"], Sources()
        for number in range(len(pad) // 2):
            dim = len(here) - 1 - number
            places = range(-pad[2 * number], here[dim] + pad[2 * number + 1])
            last = here[dim] - 1
            if op.base.startswith("reflection"):
                result[dim] = tuple(last - abs(last - abs(i)) for i in places)
            else:
                result[dim] = tuple(min(max(i, 0), last) for i in places)
        return result


@register
class NearestUpsampling(Taking):
    """Every output is the nearest input; indices are computed in float32, as PyTorch does."""

    names = tuple(f"{kind}{num}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for num in (1, 2, 3))

    def sources(self, op: Operator, tensors: Tensors) -> Sources | None:
        here, made = tensors[op.inputs[0]].shape, output(op, tensors)
        num = len(here) - 2
        scales, result = scale_factors(op, num), Sources()
        half = np.float32(0.5 if "exact" in op.base else 0.0)
        for i in range(num):
            dim, scale = i + 2, scales[i]
            ratio = np.float32(1.0 / scale) if scale else np.float32(here[dim]) / np.float32(made[dim])
            found = (floor((np.float32(o) + half) * ratio) for o in range(made[dim]))
            result[dim] = tuple(min(index, here[dim] - 1) for index in found)
        return result


def scale_factors(op: Operator, num: int) -> list[float | None]:
    """The scale of each spatial dimension, where the operator was given one."""
    given = op.args.get("scale_factors")
    if given:
        return list(given)
    single = [op.args.get(key) for key in ("scales_d", "scales_h", "scales_w", "scales")]
    found = [value for value in single if value is not None]
    return [*found] if len(found) == num else [None] * num
