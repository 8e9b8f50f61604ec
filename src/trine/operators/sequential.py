"""Sequential points as ordinary operators: local state, what all states make, apply.

A rewrite replaces one operator by two: the first makes the state of a tile in a tensor with one leading dimension for
each mesh axis (its coordinate along an axis that cuts the reduction, else length 1); the second reads the whole
state, which is what moves it.  Batch norm: (mean, M2) merged by Chan's formula.  Cross-entropy over cut classes:
(log-sum-exp, logit of the target).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from trine.graph.graph import Operator, Tensor, wide
from trine.graph.part import Box, Part, full, intersect, size, volume
from trine.operators.family import Cut, Family, Local, Rule, Tensors, register
from trine.operators.relation import Same

AxisCut = tuple[int, tuple[Part, ...]] | None  # (dimension, parts by coordinate) of the first input
LOCAL = 0  # in a lead: every coordinate of the axis keeps a state of its own (opt-in numerics)


@dataclass(frozen=True)
class Rewrite:
    """The operators that replace one, and the tensors they add."""

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]


class Rewriter(ABC):
    """One kind of sequential point."""

    @abstractmethod
    def lead(self, op: Operator, tensors: Tensors, cuts: Sequence[AxisCut], local: Sequence[bool]) -> list[int] | None:
        """For each axis the length of its leading dimension: its size if it cuts the reduction, ``LOCAL`` if it does
        and must not be merged, else 1.  None: no rewrite is needed."""

    @abstractmethod
    def apply(self, op: Operator, tensors: Tensors, lead: Sequence[int], cuts: Sequence[AxisCut]) -> Rewrite:
        """The two operators; the first takes the inputs of the original that it needs."""


REWRITES: dict[str, Rewriter] = {}


def rewrites(*targets: str) -> Callable[[type[Rewriter]], type[Rewriter]]:
    """Class decorator: enter a rewriter for these operators."""

    def enter(kind: type[Rewriter]) -> type[Rewriter]:
        REWRITES.update(dict.fromkeys(targets, kind()))
        return kind

    return enter


@rewrites("trine.batch_norm")
class BatchNorm(Rewriter):
    """Batch norm in training; always rewritten, so that one form serves every plan."""

    def lead(self, op: Operator, tensors: Tensors, cuts: Sequence[AxisCut], local: Sequence[bool]) -> list[int] | None:
        sizes = [1 if cut is None or cut[0] == 1 else len(cut[1]) for cut in cuts]
        return [LOCAL if alone and n > 1 else n for n, alone in zip(sizes, local, strict=True)]

    def apply(self, op: Operator, tensors: Tensors, lead: Sequence[int], cuts: Sequence[AxisCut]) -> Rewrite:
        x = tensors[op.args["input"][1:]]
        shape = (*(max(n, 1) for n in lead), 2, x.shape[1])
        state = Tensor(op.name + ".state", shape, wide(x.dtype))
        local_dims = sorted({cut[0] for cut, n in zip(cuts, lead, strict=True) if n == LOCAL and cut is not None})
        common = {"module": op.module, "source": op.source}
        first = Operator(
            op.name + ".state", "trine.batch_norm_state",
            {"input": op.args["input"], "num_lead": len(lead)}, (state.name,), **common,
        )  # fmt: skip
        args = {"input": op.args["input"], "state": "%" + state.name}
        args |= {key: op.args[key] for key in ("weight", "bias", "running_mean", "running_var", "momentum", "eps")}
        args |= {"counts": counts(x.shape, lead, cuts, local_dims), "local_dims": local_dims, "num_lead": len(lead)}
        second = Operator(op.name, "trine.batch_norm_apply", args, op.outputs, **common)
        return Rewrite((first, second), (state,))


def counts(shape: Sequence[int], lead: Sequence[int], cuts: Sequence[AxisCut], skip: Sequence[int]) -> list[int]:
    """Values per channel in each tile, in order of the leading dimensions; dimensions in ``skip`` do not count."""
    result = []
    for coords in product(*(range(max(n, 1)) for n in lead)):
        box = list(full(shape))
        for cut, n, coord in zip(cuts, lead, coords, strict=True):
            if n > 1 and cut is not None:
                box[cut[0]] = intersect(box[cut[0]], cut[1][coord])
        result.append(volume(tuple(part for dim, part in enumerate(box) if dim != 1 and dim not in skip)))
    return result


@rewrites("trine.cross_entropy")
class VocabularyLoss(Rewriter):
    """Cross-entropy whose classes are cut; rows may be cut as well."""

    def lead(self, op: Operator, tensors: Tensors, cuts: Sequence[AxisCut], local: Sequence[bool]) -> list[int] | None:
        logits, target = tensors[op.args["input"][1:]], tensors[op.args["target"][1:]]
        plain = op.args.get("weight") is None and not op.args.get("label_smoothing")
        if len(logits.shape) < 2 or target.is_floating or not plain:
            return None
        lead = [len(cut[1]) if cut is not None and cut[0] == 1 else 1 for cut in cuts]
        return lead if any(n > 1 for n in lead) else None

    def apply(self, op: Operator, tensors: Tensors, lead: Sequence[int], cuts: Sequence[AxisCut]) -> Rewrite:
        logits = tensors[op.args["input"][1:]]
        shape = (*lead, 2, logits.shape[0], *logits.shape[2:])
        state = Tensor(op.name + ".state", shape, wide(logits.dtype))
        common = {"module": op.module, "source": op.source}
        args = {"input": op.args["input"], "target": op.args["target"], "num_lead": len(lead)}
        first = Operator(op.name + ".state", "trine.vocab_state", args, (state.name,), **common)
        args = {"state": "%" + state.name, "target": op.args["target"], "num_lead": len(lead)}
        args |= {"ignore_index": op.args.get("ignore_index", -100), "num_classes": logits.shape[1]}
        return Rewrite((first, Operator(op.name, "trine.vocab_merge", args, op.outputs, **common)), (state,))


@register
class BatchNormState(Family):
    """x (N, C, …) → state (1, …, 1, 2, C): mean and sum of squared distances of this tile."""

    names = ("batch_norm_state",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        channels = tensors[op.inputs[0]].shape[1]
        return (Rule("row", channels, (Cut(0, 1, Same()),), ((0, op.args["num_lead"] + 1),)),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 3.0 * volume(in_boxes[0])


@register
class BatchNormApply(Family):
    """(x, states, weight, bias, running mean and variance) → (y, new running mean, new running variance)."""

    names = ("batch_norm_apply",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        shape, num_lead = tensors[op.inputs[0]].shape, op.args["num_lead"]
        rows = [Rule("row", n, (Cut(0, d, Same()),), ((0, d),)) for d, n in enumerate(shape) if d != 1]
        others = tuple(Cut(i, 0, Same()) for i in range(2, len(op.inputs)))
        cuts = (Cut(0, 1, Same()), Cut(1, num_lead + 1, Same()), *others)
        return (*rows, Rule("row", shape[1], cuts, ((0, 1), (1, 0), (2, 0))))

    def local(self, piece: Local) -> tuple[Operator, ...]:
        factor = 1
        for dim in piece.op.args["local_dims"]:
            factor *= size(piece.in_boxes[0][dim])
        args = dict(piece.op.args)
        args["counts"] = [n * factor for n in args["counts"]]
        args["local_dims"] = []
        return (Operator(piece.op.name, piece.op.target, args, piece.op.outputs, piece.op.module, piece.op.source),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 2.0 * volume(out_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return (op.inputs[0], op.inputs[1])


@register
class VocabState(Family):
    """Logits (N, C, d…), target (N, d…) → (…, 2, N, d…): log-sum-exp and the target's logit, over a tile's classes."""

    names = ("vocab_state",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        shape, first = tensors[op.inputs[0]].shape, op.args["num_lead"] + 1
        dims = [(0, 0), *((d, d - 1) for d in range(2, len(shape)))]
        return tuple(Rule("row", shape[d], (Cut(0, d, Same()), Cut(1, t, Same())), ((0, first + t),)) for d, t in dims)

    def local(self, piece: Local) -> tuple[Operator, ...]:
        args = {**piece.op.args, "part": [list(pair) for pair in piece.in_boxes[0][1]]}
        return (Operator(piece.op.name, piece.op.target, args, piece.op.outputs, piece.op.module, piece.op.source),)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 4.0 * volume(in_boxes[0])


@register
class VocabMerge(Family):
    """States, target → (2,): sum of losses, number of targets that count."""

    names = ("vocab_merge",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        shape, first = tensors[op.inputs[1]].shape, op.args["num_lead"] + 1
        return tuple(
            Rule("contraction", n, (Cut(0, first + d, Same()), Cut(1, d, Same())), (), "sum")
            for d, n in enumerate(shape)
        )
