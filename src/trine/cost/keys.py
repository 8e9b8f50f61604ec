"""The canonical key of a local operator: equal keys take equal time on equal engines.

A key is JSON: target, arguments and which outputs are used or carry a gradient.  A tensor that exists in memory is a
word like ``"%float32[8,64,56,56]*"``: type, shape, ``*`` if a gradient flows through it, ``@`` if it rests or stays
for a whole step (a weight), so that it was not written just before.  A tensor made by an operator that only changes
the view, or that has no tile of its own, or by attention (whose output is stored transposed) is that operator's own
key, nested: so whoever times an operator can rebuild its inputs with their true strides.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from trine.graph.graph import Operator, is_ref, refs
from trine.program.program import Program, Segment

VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose", "t",
    "expand", "slice", "select", "split", "split_with_sizes", "chunk", "narrow", "unbind", "take", "alias", "detach",
    "movedim", "diagonal", "unfold",
})  # fmt: skip
"""Operators whose output shares the memory of their input."""

NESTED = VIEWS | {"scaled_dot_product_attention"}
COUNTERS = {"dropout": "index", "bernoulli": "index", "rand": "index", "randn": "index"}
"""Arguments that number random operators: they change what is drawn, never how long it takes."""

UNUSED, USED, ACTIVE = 0, 1, 2


def operator_keys(program: Program, segment: Segment) -> tuple[str, ...]:
    """The key of each operator of a segment, in order."""
    describe = _Describer(program, segment)
    return tuple(_text(describe.operator(op)) for op in segment.operators)


def distinct_keys(program: Program) -> Iterator[str]:
    """Every key of a Program, once."""
    seen: dict[str, None] = {}
    for segment in program.segments.values():
        seen.update(dict.fromkeys(operator_keys(program, segment)))
    yield from seen


def _text(described: dict[str, Any]) -> str:
    return msgspec.json.encode(described, order="sorted").decode()


def parse(key: str) -> dict[str, Any]:
    """The description behind a key: ``target``, ``args`` and ``outputs`` (UNUSED, USED or ACTIVE)."""
    described: dict[str, Any] = msgspec.json.decode(key)
    return described


class _Describer:
    """Describes the operators of one segment."""

    def __init__(self, program: Program, segment: Segment) -> None:
        self.program = program
        self.cold = {f"t{n}" for n in (*program.parameters, *program.stored)}
        self.maker = {
            name: (op, number) for op in segment.operators for number, name in enumerate(op.outputs) if name is not None
        }

    def operator(self, op: Operator) -> dict[str, Any]:
        args = {key: self.argument(value) for key, value in op.args.items()}
        counter = COUNTERS.get(op.base)
        if counter in args:
            args[counter] = 0
        return {"target": op.target, "args": args, "outputs": [self.use(name) for name in op.outputs]}

    def argument(self, value: Any) -> Any:
        """An argument with its tensors described."""
        if is_ref(value):
            return self.tensor(value[1:])
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        return value

    def tensor(self, name: str) -> Any:
        made = self.maker.get(name)
        if made is not None and (made[0].base in NESTED or self.tile(name) is None):
            return {"made": self.operator(made[0]), "output": made[1]}
        tile = self.tile(name)
        assert tile is not None, f"{name} is neither a tile nor made in this segment"
        marks = ("*" if self.active(name) else "") + ("@" if tile.per_step or name in self.cold else "")
        return f"%{tile.dtype}[{','.join(map(str, tile.local_shape))}]{marks}"

    def use(self, name: str | None) -> int:
        if name is None:
            return UNUSED
        return ACTIVE if self.active(name) else USED

    def active(self, name: str) -> bool:
        """Whether a gradient flows through a tensor; one without a tile is active if anything it is made of is."""
        tile = self.tile(name)
        if tile is not None:
            return tile.active and self.program.training
        return any(self.active(source) for source in refs(self.maker[name][0].args))

    def tile(self, name: str) -> Any:
        return self.program.tiles.get(int(name[1:])) if name[1:].isdigit() else None


def is_active(described: dict[str, Any]) -> bool:
    """Whether the operator has a backward part."""
    return ACTIVE in described["outputs"]
