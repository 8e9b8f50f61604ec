"""Cutting one operator as a compiler would: choose parts, take the needed boxes, run the pieces."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import torch

from trine.graph.graph import Operator, Tensor
from trine.graph.part import Box, Part, even, full, indices, intersect, size, span, volume
from trine.lower.targets import decode, resolve, run_operators
from trine.operators.family import Local, Rule, complete, family_of


@dataclass(frozen=True)
class Case:
    """An operator with values for its inputs and what the whole of it makes."""

    op: Operator
    tensors: dict[str, Tensor]
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]

    @property
    def names(self) -> list[str]:
        return [name for name in self.op.outputs if name is not None]


def run(op: Operator, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of the whole operator."""
    space: dict[str, Any] = dict(values)
    run_operators((op,), space)
    return {name: space[name] for name in op.outputs if name is not None}


def build(target: str, args: dict[str, Any], unused: Sequence[int] = ()) -> Case:
    """A case from arguments that hold tensors; defaults are filled in from the schema."""
    values: dict[str, torch.Tensor] = {}

    def plain(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            name = f"x{len(values)}"
            values[name] = item
            return "%" + name
        return [plain(each) for each in item] if isinstance(item, (list, tuple)) else item

    if target.startswith("aten."):
        _, base, overload = target.split(".")
        schema = getattr(getattr(torch.ops.aten, base), overload)._schema
        names = {argument.name: argument.default_value for argument in schema.arguments}
        assert set(args) <= set(names), f"{target} takes {list(names)}"
        args = {name: args.get(name, default) for name, default in names.items()}
    encoded = {name: plain(item) for name, item in args.items()}
    made = resolve(target)(**{name: decode(item, values) for name, item in encoded.items()})
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    outputs = tuple(None if i in unused else f"y{i}" for i in range(len(made)))
    op = Operator("op", target, encoded, outputs)
    results = {name: item for name, item in zip(outputs, made, strict=True) if name is not None}
    tensors = {
        name: Tensor(name, tuple(item.shape), str(item.dtype).removeprefix("torch."))
        for name, item in {**values, **results}.items()
    }
    return Case(op, tensors, values, results)


def partition(rule: Rule, random: Random) -> tuple[Part, ...] | None:
    """Random uneven parts of a rule's range, some of them empty; None if nothing that was tried is accepted."""
    tries: list[tuple[Part, ...]] = []
    num = random.randint(2, 4)
    shares = [random.choice((0, 1, 1, 2, 5)) for _ in range(num - 1)] + [1]
    random.shuffle(shares)
    for cut in random.sample(rule.inputs, len(rule.inputs))[:3]:
        length = max((high for _, high in cut.relation.needs(span(0, rule.length))), default=0)
        tries.append(complete([cut.relation.follow(part) for part in even(length, shares)], rule.length))
    coarse = even(rule.length // rule.multiple, shares)
    tries.append(tuple(tuple((a * rule.multiple, b * rule.multiple) for a, b in part) for part in coarse))
    if rule.length % 2 == 0 and rule.multiple == 1:
        tries.append(even(rule.length, shares, 2))
    random.shuffle(tries)
    return next((parts for parts in tries if all(rule.accepts(part) for part in parts)), None)


@dataclass
class Piece:
    """One coordinate: its boxes, and whether it adds to what others make."""

    local: Local
    reduces: bool
    cut_faces: list[tuple[int, int]] = field(default_factory=list)  # (input position, dimension) that a rule cuts

    @property
    def is_empty(self) -> bool:
        return any(volume(box) == 0 for box in self.local.out_boxes if box)


def pieces(case: Case, chosen: Sequence[tuple[Rule, tuple[Part, ...]]], *, narrow: bool) -> list[Piece]:
    """The pieces of all coordinates; ``narrow``: dimensions that no rule cuts hold only what the whole reads."""
    op, tensors, result = case.op, case.tensors, []
    narrowed = family_of(op).whole_needs(op, tensors) if narrow else {}
    for coords in product(*(range(len(parts)) for _, parts in chosen)):
        ins = [list(full(tensors[name].shape)) for name in op.inputs]
        outs = [list(full(tensors[name].shape)) if name is not None else None for name in op.outputs]
        faces: list[tuple[int, int]] = []
        dropped: set[int] = set()
        idle = False
        for (rule, parts), at in zip(chosen, coords, strict=True):
            part = parts[at]
            for cut in rule.inputs:
                box = ins[cut.position]
                box[cut.dim] = intersect(box[cut.dim], cut.relation.needs(part))
                faces.append((cut.position, cut.dim))
            for number, dim in rule.outputs:
                box = outs[number]
                assert box is not None
                box[dim] = intersect(box[dim], part)
            if rule.reduce:
                idle = idle or not part
                first = next(i for i, p in enumerate(parts) if p)
                dropped |= set(rule.first_only) if at != first else set()
        for (position, dim), part in narrowed.items():
            if (position, dim) not in faces:
                ins[position][dim] = intersect(ins[position][dim], part)
        out_boxes = tuple(tuple(box) if box is not None else () for box in outs)
        local = Local(op, tensors, tuple(tuple(box) for box in ins), out_boxes, frozenset(dropped))
        piece = Piece(local, any(rule.reduce for rule, _ in chosen), faces)
        if not piece.is_empty and not idle:
            result.append(piece)
    return result


def take(value: torch.Tensor, box: Box) -> torch.Tensor:
    """The packed tile of a box."""
    for dim, part in enumerate(box):
        if part != span(0, value.shape[dim]):
            value = value.index_select(dim, torch.from_numpy(indices(part)))
    return value


def places(box: Box) -> tuple[torch.Tensor, ...]:
    """Indices of every element of a box."""
    lists = [torch.from_numpy(indices(part)) for part in box]
    return tuple(torch.meshgrid(*lists, indexing="ij")) if lists else ()


def run_piece(case: Case, piece: Piece, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the piece makes from exactly the needed tiles."""
    local = piece.local
    names = [f"in{i}" for i in range(len(case.op.inputs))]
    op, tensors = renumbered(case, names)
    space: dict[str, Any] = {}
    for name, old, box in zip(names, case.op.inputs, local.in_boxes, strict=True):
        space[name] = take(values[old], box)
    operators = family_of(op).local(Local(op, tensors, local.in_boxes, local.out_boxes, local.dropped))
    assert operators[-1].outputs == op.outputs
    run_operators(operators, space)
    return {name: space[name] for name in case.names}


def renumbered(case: Case, names: Sequence[str]) -> tuple[Operator, dict[str, Tensor]]:
    """The operator with an own name for each use of an input."""
    left = iter(names)

    def again(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("%"):
            return "%" + next(left)
        return [again(item) for item in value] if isinstance(value, list) else value

    op = Operator(case.op.name, case.op.target, {k: again(v) for k, v in case.op.args.items()}, case.op.outputs)
    tensors = dict(case.tensors)
    tensors |= {new: case.tensors[old] for new, old in zip(names, case.op.inputs, strict=True)}
    return op, tensors


def assemble(case: Case, made: Sequence[tuple[Piece, dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """Whole outputs from those of the pieces, partial sums added; every element must be made."""
    result = {}
    for name in case.names:
        number = case.op.outputs.index(name)
        whole = torch.zeros_like(case.outputs[name])
        seen = torch.zeros(whole.shape, dtype=torch.int64)
        for piece, outputs in made:
            box = piece.local.out_boxes[number]
            where = places(box)
            assert outputs[name].shape == tuple(size(part) for part in box)
            if piece.reduces:
                whole[where] = whole[where] + outputs[name]
            else:
                whole[where] = outputs[name]
            seen[where] += 1
        assert bool((seen > 0).all()), "an element is made by no piece"
        assert piece.reduces or bool((seen == 1).all()), "an element is made twice"
        result[name] = whole
    return result
