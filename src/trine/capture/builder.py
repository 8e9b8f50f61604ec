"""The graph under construction: fresh names, tensors and operators, and the code of arguments as plain values."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from trine.errors import CaptureFailed
from trine.graph.graph import ITEM_BYTES, Graph, Kind, Operator, Output, Tensor, refs

Sort = tuple[tuple[int, ...], str]  # shape and data type of a tensor
BY_VALUES = "Change that line so that it does not depend on the values of tensors"  # a way out


class Builder:
    """Collects tensors and operators; ``module`` and ``source`` are those of the operators that are being added."""

    def __init__(self, model: str, reserved: Iterable[str] = ()) -> None:
        self.model = model
        self.tensors: dict[str, Tensor] = {}
        self.operators: list[Operator] = []
        self.module = self.source = ""
        self.num_draws = 0
        self._taken = set(reserved)
        self._counts: dict[str, int] = {}

    def fail(self, why: str, change: str = "") -> CaptureFailed:
        """The error for what stands at the present line of the model; ``change``: the way out."""
        place = f" in module {self.module}" if self.module else ""
        return CaptureFailed(model=self.model, line=self.source, why=why + place, change=change)

    def fresh(self, base: str) -> str:
        """A name that nothing has yet: ``conv2d``, ``conv2d_1``, …"""
        while True:
            count = self._counts.get(base, 0)
            self._counts[base] = count + 1
            name = f"{base}_{count}" if count else base
            if name not in self._taken:
                self._taken.add(name)
                return name

    def add_tensor(self, name: str, value: torch.Tensor, kind: Kind) -> str:
        """Enter a tensor that no operator makes; gives its reference."""
        shape, dtype = self.sort_of(value, f"the {kind} {name}")
        self.tensors[name] = Tensor(name, shape, dtype, kind)
        self._taken.add(name)
        return "%" + name

    def sort_of(self, value: torch.Tensor, what: str = "a tensor") -> Sort:
        """Shape and data type of a traced tensor."""
        if not all(type(n) is int for n in value.shape):
            raise self.fail(f"{what} has a shape that depends on data", BY_VALUES)
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in ITEM_BYTES:
            change = "Write it in real numbers (torch.view_as_real)" if value.is_complex() else "Use another data type"
            raise self.fail(f"{what} has the data type {dtype}, which is not supported", change)
        return tuple(value.shape), dtype

    def sort(self, ref: str) -> Sort:
        """Shape and data type behind a reference."""
        tensor = self.tensors[ref[1:]]
        return tensor.shape, tensor.dtype

    def shape(self, ref: str) -> tuple[int, ...]:
        """Shape behind a reference."""
        return self.tensors[ref[1:]].shape

    def emit(self, target: str, args: dict[str, Any], sorts: Sequence[Sort | None]) -> list[str | None]:
        """Add an operator; gives the references of its outputs."""
        name = self.fresh(target.split(".")[1].strip("_"))
        outputs: list[str | None] = []
        for number, sort in enumerate(sorts):
            if sort is None:
                outputs.append(None)
                continue
            output = self.fresh(f"{name}_out{number}") if number else name
            self.tensors[output] = Tensor(output, sort[0], sort[1])
            outputs.append(output)
        self.operators.append(Operator(name, target, args, tuple(outputs), self.module, self.source))
        return [None if output is None else "%" + output for output in outputs]

    def one(self, target: str, args: dict[str, Any], sort: Sort) -> str:
        """Add an operator with one output; gives its reference."""
        (ref,) = self.emit(target, args, (sort,))
        assert ref is not None
        return ref

    def draw(self) -> int:
        """The number of the next random operator, in order of execution."""
        self.num_draws += 1
        return self.num_draws - 1

    def graph(self, inputs: Sequence[str], outputs: Sequence[Output], **rest: Any) -> Graph:
        """The graph without the operators and outputs that nobody reads."""
        used = {output.tensor for output in outputs}
        kept: list[Operator] = []
        for op in reversed(self.operators):
            names = tuple(name if name in used else None for name in op.outputs)
            if any(names):
                kept.append(Operator(op.name, op.target, op.args, names, op.module, op.source))
                used.update(refs(op.args))
        tensors = {n: t for n, t in self.tensors.items() if t.kind != "activation" or n in used}
        return Graph(self.model, tensors, tuple(reversed(kept)), tuple(inputs), tuple(outputs), **rest)


def encode(value: Any, env: dict[str, Any], builder: Builder) -> Any:
    """An argument of a traced operator as a plain value, as ``trine.graph.graph`` says."""
    if isinstance(value, torch.fx.Node):
        return env[value.name]
    if isinstance(value, torch.dtype):
        return "dtype:" + str(value).removeprefix("torch.")
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"float:{value}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item, env, builder) for item in value]
    raise builder.fail(f"an operator has an argument of type {type(value).__name__} ({value})")


def schema_args(node: torch.fx.Node, env: dict[str, Any], builder: Builder) -> dict[str, Any]:
    """Arguments of a traced operator by the names of its schema, defaults filled in."""
    result = {}
    for position, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if position < len(node.args):
            value: Any = node.args[position]
        else:
            value = node.kwargs.get(argument.name, argument.default_value)
        result[argument.name] = encode(value, env, builder)
    for name in ("device", "layout", "pin_memory", "memory_format"):
        if name in result:
            result[name] = None
    return result


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_of(node: torch.fx.Node, own: str) -> str:
    """``file:line`` of the model's own code that made the node, without the machine's folders."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    theirs = [frame for frame in frames if "/torch/" not in frame[0] and frame[0] != own]
    return f"{short(theirs[-1][0])}:{theirs[-1][1]}" if theirs else ""


def short(path: str) -> str:
    """A path from its package on, or the file's name alone."""
    return path.rsplit("-packages/", 1)[1] if "-packages/" in path else path.rsplit("/", 1)[-1]


def module_of(node: torch.fx.Node) -> str:
    """Path of the module that made the node; ``""`` for the model itself and for its loss."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    path = re.sub(r"\.?slice\((\w+), \w+, \w+\)\.(\d+)", _unsliced, path)
    return "" if path == "model" else path.removeprefix("model.")


def _unsliced(match: re.Match[str]) -> str:
    """``layers.slice(2, None, None).0`` is ``layers.2``."""
    start = 0 if match[1] == "None" else int(match[1])
    return f".{start + int(match[2])}"
