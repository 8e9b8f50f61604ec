"""Graph: what the model is.  Tensors, operators and how the outside world meets them.

Arguments of an operator are plain JSON values.  A tensor is named by the string ``"%name"``, a data type by
``"dtype:float32"`` and an infinite number by ``"float:-inf"``, so a graph goes to JSON and back unchanged.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")
Kind = Literal["input", "parameter", "buffer", "constant", "activation"]
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip


def wide(dtype: str) -> str:
    """The type in which sums and statistics of a type are kept: float32 for half precision."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


class Tensor(msgspec.Struct, frozen=True):
    """One value: its name, shape, data type and where it comes from."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind = "activation"

    @property
    def num_elements(self) -> int:
        result = 1
        for n in self.shape:
            result *= n
        return result

    @property
    def num_bytes(self) -> int:
        return self.num_elements * ITEM_BYTES[self.dtype]

    @property
    def is_floating(self) -> bool:
        return "float" in self.dtype


class Operator(msgspec.Struct, frozen=True, dict=True):
    """One operation: ``target`` is ``"aten.conv2d.default"`` or ``"trine.NAME"``, ``args`` maps the schema's names
    (defaults filled in) to values, ``outputs`` names the results (``None`` for one that nobody uses)."""

    name: str
    target: str
    args: dict[str, Any]
    outputs: tuple[str | None, ...]
    module: str = ""
    source: str = ""

    @cached_property
    def base(self) -> str:
        """The target without namespace and overload: ``"conv2d"``."""
        return self.target.split(".")[1]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors it takes, in order of the arguments, repeated as often as they are used."""
        return tuple(refs(self.args))


class Output(msgspec.Struct, frozen=True):
    """A value that leaves the graph: the loss, a result of the model, or the new value of a buffer."""

    kind: Literal["loss", "user", "buffer"]
    tensor: str
    target: str = ""


class Graph(msgspec.Struct, frozen=True, dict=True):
    """A model at fixed shapes in one mode.  Operators are in order of execution."""

    name: str
    tensors: dict[str, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    training: bool
    batch_dims: dict[str, int] = {}
    names: dict[str, tuple[str, ...]] = {}  # parameter, buffer or constant → its names in the module (several if tied)

    def by_kind(self, kind: Kind) -> tuple[Tensor, ...]:
        """The tensors of one kind, in order."""
        return tuple(t for t in self.tensors.values() if t.kind == kind)

    @property
    def loss(self) -> str | None:
        """The name of the loss, if the graph has one."""
        return next((o.tensor for o in self.outputs if o.kind == "loss"), None)

    def shapes(self, operator: Operator) -> tuple[tuple[int, ...], ...]:
        """Shapes of the operator's inputs in order."""
        return tuple(self.tensors[name].shape for name in operator.inputs)

    def consumers(self) -> dict[str, tuple[Operator, ...]]:
        """Operators that read each tensor, in order."""
        result: dict[str, list[Operator]] = {name: [] for name in self.tensors}
        for op in self.operators:
            for name in dict.fromkeys(op.inputs):
                result[name].append(op)
        return {name: tuple(ops) for name, ops in result.items()}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What follows from the graph alone and takes time: made when it is asked for first, and kept under a name."""
        if name not in self.__dict__:
            self.__dict__[name] = make()
        result: T = self.__dict__[name]
        return result

    def fingerprint(self) -> str:
        """A digest of shapes, operators and names: equal graphs have equal ones, in any process.  Lines of the source
        do not count."""
        plain = tuple(msgspec.structs.replace(op, source="") for op in self.operators)
        graph = msgspec.structs.replace(self, operators=plain)
        return hashlib.sha256(msgspec.json.encode(graph, order="sorted")).hexdigest()[:16]


def is_ref(value: Any) -> bool:
    """Whether an argument names a tensor."""
    return isinstance(value, str) and value.startswith("%")


def refs(value: Any) -> Iterator[str]:
    """Names of the tensors inside an argument, in order, depth first."""
    if is_ref(value):
        yield value[1:]
    elif isinstance(value, dict):
        for item in value.values():
            yield from refs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)


def substitute(value: Any, mapping: dict[str, str]) -> Any:
    """The argument with tensors renamed; a name that is not in the mapping stays."""
    if is_ref(value):
        return "%" + mapping.get(value[1:], value[1:])
    if isinstance(value, dict):
        return {key: substitute(item, mapping) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute(item, mapping) for item in value]
    return value


def check(graph: Graph) -> None:
    """Legality: every tensor is made before it is read, once, and every output exists.  Raises ValueError."""
    made = {t.name for t in graph.tensors.values() if t.kind != "activation"}
    for op in graph.operators:
        missing = [name for name in op.inputs if name not in made]
        if missing:
            raise ValueError(f"operator {op.name} reads {missing[0]}, which no earlier operator makes")
        for name in op.outputs:
            if name is not None and (name in made or name not in graph.tensors):
                raise ValueError(f"operator {op.name} makes {name}, which exists already or has no shape")
            if name is not None:
                made.add(name)
    lost = [o.tensor for o in graph.outputs if o.tensor not in made]
    if lost:
        raise ValueError(f"the output {lost[0]} is made by no operator")
