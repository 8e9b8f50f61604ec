"""Bit equality on small integers: every operator of a plan whose arithmetic is exact on them, piece by piece.

Each operator is run whole and as the pieces that the plan's engines run, on tensors of small integers in float64.
Sums of these are exact in any order, so pieces must equal the whole bit for bit, values and gradients; no tolerance can
hide a footprint that is off by one.  Operators that round (exponentials, divisions, norms) are not judged here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trine.graph.graph import Operator
from trine.graph.part import Box, volume
from trine.lower.targets import run_operators
from trine.lower.tiles import put, take
from trine.operators.family import family_of
from trine.operators.rearrange import Rearrangement
from trine.plan.layout import PARTIAL, Layout
from trine.plan.plan import Plan
from trine.program.compile import Compiled, PieceOf
from trine.run.job import Job

EXACT = {
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear",
    "addmm", "mm", "bmm", "matmul", "mv", "dot", "baddbmm", "outer", "einsum", "add", "sub", "rsub", "mul", "neg",
    "relu", "abs", "square", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "hardtanh", "relu6",
    "threshold", "where", "masked_fill", "addcmul", "sum", "cumsum", "amax", "amin", "max", "min", "prod",
    "embedding", "gather", "index_select", "index", "detach", "clone", "alias", "_to_copy", "copy", "contiguous",
    "eq", "ne", "lt", "gt", "le", "ge", "logical_and", "logical_or", "logical_not", "sign", "floor", "ceil", "round",
    "trunc", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "max_unpool2d", "max_unpool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "scatter", "scatter_add", "index_add",
    "index_copy", "index_fill", "slice_scatter", "select_scatter", "pixel_shuffle", "pixel_unshuffle",
    "repeat_interleave", "sort", "topk", "argmax", "argmin", "expand", "broadcast_to",
}  # fmt: skip
LOW, HIGH = -2, 3  # values: -2 … 2
TIES = ("amax", "amin", "max", "min", "sort", "topk")  # which of equal elements gets the gradient is open: values only


@dataclass
class Integers:
    """What was found: operators that are equal bit for bit, those that are not, and those that round."""

    plan: Plan
    equal: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)


def judge_integers(job: Job, plan: Plan) -> Integers:
    """Every operator of the largest micro-batch, once, on small integers that are drawn by its number."""
    result = Integers(plan)
    compiled = job.compiled(plan)
    seen: set[str] = set()
    works: dict[int, list[PieceOf]] = {}
    for piece in compiled.pieces():
        works.setdefault(id(piece.work), []).append(piece)
    for pieces in works.values():
        op = pieces[0].work.placed.op
        if not op.inputs or op.name in seen:
            continue
        seen.add(op.name)
        name = f"{op.module}: {op.base}".removeprefix(": ")
        if op.base not in EXACT and not isinstance(family_of(op), Rearrangement):
            result.rounding.append(name)
        else:
            with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
                torch.manual_seed(len(seen))
                same = _is_equal(compiled, pieces)
            (result.equal if same else result.different).append(name)
    return result


def _is_equal(compiled: Compiled, pieces: Sequence[PieceOf]) -> bool:
    """Whether the pieces make what the whole makes, and their gradients add up to its gradient."""
    with torch.enable_grad():
        trial = _Trial(compiled, pieces[0].work.placed.op)
        return all(trial.run(piece) for piece in pieces) and trial.adds_up()


class _Trial:
    """One operator with its whole result; what its pieces make is held against it one by one."""

    def __init__(self, compiled: Compiled, op: Operator) -> None:
        tensors = compiled.tensors
        self.op = op
        self.whole = {n: _numbers(tensors[n].shape, tensors[n].dtype, op, n, compiled) for n in op.inputs}
        names = dict.fromkeys(op.inputs)
        self.leaves = [n for n in names if self.whole[n].is_floating_point() and op.base not in TIES]
        for name in self.leaves:
            self.whole[name].requires_grad_()
        space = dict(self.whole)
        run_operators((op,), space)
        self.outputs = {n: space[n] for n in op.outputs if n is not None}
        self.seeds = {n: _seed(out) for n, out in self.outputs.items() if out.requires_grad}
        self.sums = {n: torch.zeros_like(out) for n, out in self.outputs.items()}
        self.found = {n: torch.zeros_like(self.whole[n]) for n in self.leaves}
        self.fresh: dict[tuple[str, tuple[int, ...]], Tensor] = {}  # 1 where no piece was before: halos are made twice

    def run(self, piece: PieceOf) -> bool:
        """Run one engine's piece, and take its share of partial sums and of gradients; whether its outputs that are no
        partial sums are those of the whole."""
        placed, same = piece.work.placed, True
        names = [f"t{slot}" for slot in piece.work.inputs]
        tiles: dict[str, Tensor] = {}
        for name, old, box in zip(names, self.op.inputs, piece.in_boxes, strict=True):
            tiles[name] = take(self.whole[old].detach(), box).clone().requires_grad_(self.whole[old].requires_grad)
        space = dict(tiles)
        run_operators(piece.operators, space)
        ends, gradients = list[Tensor](), list[Tensor]()
        for old, slot, box, layout in zip(
            self.op.outputs, piece.work.outputs, piece.out_boxes, placed.layouts, strict=True
        ):
            if old is None or slot is None or not volume(box):
                continue
            value, fresh = space[f"t{slot}"], self.first(old, box, layout, piece.coords)
            if PARTIAL in layout:
                put(self.sums[old], box, value.detach() * fresh.to(value.dtype), add=True)
            else:
                same = same and torch.equal(value.detach(), take(self.outputs[old].detach(), box))
                put(self.sums[old], box, value.detach(), add=False)
            if old in self.seeds and value.requires_grad:
                ends.append(value)
                gradients.append(take(self.seeds[old], box) * fresh)
        used = {name: n for n, name in enumerate(names) if tiles[name].requires_grad}
        for (_, n), grad in zip(used.items(), _gradients(ends, gradients, [tiles[u] for u in used]), strict=True):
            put(self.found[self.op.inputs[n]], piece.in_boxes[n], grad, add=True)
        return same

    def first(self, name: str, box: Box, layout: Layout, coords: tuple[int, ...]) -> Tensor:
        """1 for each element of a box that no piece before has had, of those that make the same."""
        term = tuple(coord for state, coord in zip(layout, coords, strict=True) if state == PARTIAL)
        left = self.fresh.setdefault((name, term), torch.ones(self.outputs[name].shape, dtype=torch.float64))
        result = take(left, box).clone()
        put(left, box, torch.zeros_like(result), add=False)
        return result

    def adds_up(self) -> bool:
        """Whether all pieces together have made everything, and all gradients."""
        wanted = _gradients(
            [self.outputs[n] for n in self.seeds], list(self.seeds.values()), [self.whole[n] for n in self.leaves]
        )
        same = all(torch.equal(self.sums[n], out.detach()) for n, out in self.outputs.items())
        return same and all(torch.equal(self.found[n], want) for n, want in zip(self.leaves, wanted, strict=True))


def _gradients(ends: Sequence[Tensor], seeds: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the leaves, zero where none leads."""
    if not ends or not leaves:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(ends, leaves, seeds, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def _seed(like: Tensor) -> Tensor:
    return torch.randint(LOW, HIGH, like.shape).to(like.dtype)


def _numbers(shape: tuple[int, ...], dtype: str, op: Operator, name: str, compiled: Compiled) -> Tensor:
    """Small integers; those that number something stay below how many there are."""
    kind: torch.dtype = getattr(torch, dtype)
    if kind == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if kind.is_floating_point:
        return torch.randint(LOW, HIGH, shape).to(kind)
    others = [compiled.tensors[n].shape for n in op.inputs if n != name]
    limits = [min(s) for s in others if s and min(s)]
    return torch.randint(0, min([*limits, 3]), shape).to(kind)
