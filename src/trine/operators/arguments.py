"""Reading an operator: which tensor an argument names, which shapes it has, and writing a changed copy."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trine.graph.graph import Operator, Tensor, is_ref, refs
from trine.graph.part import Part, full
from trine.operators.family import Cut, Local, Rule, Tensors
from trine.operators.relation import Relation, Same

SAME = Same()


def position(op: Operator, key: str) -> int | None:
    """Number of the input that the argument names; None if it names none."""
    number = 0
    for name, value in op.args.items():
        if name == key:
            return number if is_ref(value) else None
        number += sum(1 for _ in refs(value))
    return None


def tensor(op: Operator, tensors: Tensors, key: str) -> Tensor | None:
    """The tensor that the argument names; None if it names none."""
    value = op.args.get(key)
    return tensors[str(value)[1:]] if is_ref(value) else None


def shape(op: Operator, tensors: Tensors, key: str) -> tuple[int, ...]:
    """Shape of the tensor that the argument names; () if it names none."""
    found = tensor(op, tensors, key)
    return found.shape if found is not None else ()


def output(op: Operator, tensors: Tensors) -> tuple[int, ...]:
    """Shape of the first output that somebody uses."""
    return tensors[next(name for name in op.outputs if name is not None)].shape


def outputs_along(op: Operator, dim: int) -> tuple[tuple[int, int], ...]:
    """Every output that somebody uses, cut along one dimension."""
    return tuple((number, dim) for number, name in enumerate(op.outputs) if name is not None)


def cut(op: Operator, key: str, dim: int, relation: Relation = SAME) -> tuple[Cut, ...]:
    """The cut of an argument, or none if the argument names no tensor."""
    at = position(op, key)
    return () if at is None else (Cut(at, dim, relation),)


def aligned(
    op: Operator, tensors: Tensors, positions: Iterable[int], like: tuple[int, ...], dim: int
) -> tuple[Cut, ...]:
    """Cuts of inputs that broadcast to the shape ``like``, along its dimension ``dim``."""
    result = []
    for at in positions:
        here = tensors[op.inputs[at]].shape
        own = dim - len(like) + len(here)
        if own >= 0 and here[own] == like[dim]:
            result.append(Cut(at, own, SAME))
    return tuple(result)


def rows(op: Operator, dims: Iterable[int], like: tuple[int, ...], *keys: str) -> tuple[Rule, ...]:
    """A rule for each dimension, along which the named inputs (their whole shape is ``like``) and outputs agree."""
    return tuple(
        Rule("row", like[d], tuple(c for key in keys for c in cut(op, key, d)), outputs_along(op, d))
        for d in dims
        if like[d] > 1
    )


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + rank if dim < 0 else dim


def spread(value: Any, num: int) -> tuple[int, ...]:
    """An argument that may be one number or one for each dimension."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return values * num if len(values) == 1 else values


def changed(op: Operator, target: str = "", args: Mapping[str, Any] | None = None, **update: Any) -> Operator:
    """A copy of the operator with another target, other arguments, or some arguments updated."""
    new = {**(op.args if args is None else args), **update}
    return msgspec.structs.replace(op, target=target or op.target, args=new)


def step(op: Operator, suffix: str, target: str, **args: Any) -> Operator:
    """An operator in front of ``op`` whose result is named after it."""
    name = f"{op.name}.{suffix}"
    return Operator(name, target, args, (name,), op.module, op.source)


def alias(op: Operator, ref: str) -> Operator:
    """The operator replaced by its input as it is."""
    return changed(op, "aten.alias.default", {"self": ref})


def is_whole(piece: Local) -> bool:
    """Whether the piece is the whole operator."""
    names = (*piece.op.inputs, *(name for name in piece.op.outputs if name is not None))
    used = [box for box, name in zip(piece.out_boxes, piece.op.outputs, strict=True) if name is not None]
    return [*piece.in_boxes, *used] == [full(piece.tensors[name].shape) for name in names] and not piece.dropped


def out_box(piece: Local) -> tuple[Part, ...]:
    """Box of the first output that somebody uses."""
    return next(b for b, name in zip(piece.out_boxes, piece.op.outputs, strict=True) if name is not None)
