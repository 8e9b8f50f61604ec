"""From the key of a local operator to something that can run: its tensors, its call, its gradients."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from trine.cost.keys import ACTIVE, VIEWS, parse
from trine.lower.targets import resolve

CLASSES = {"cross_entropy": "input", "vocab_state": "input", "nll_loss": "self"}
"""Operators whose integer argument names a class, and the argument whose dimension 1 counts the classes."""


class OperatorInstance:
    """One local operator with tensors of its own, run as the executor runs it: inputs detached, gradients for what is
    active.  Tensors are random and positive; integers are valid indices.  See :class:`trine.measure.trial.Instance`."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        """``described``: a parsed key."""
        self.hot: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.num_bytes = self.saved_bytes = 0
        self.active = [i for i, use in enumerate(described["outputs"]) if use == ACTIVE]
        self.function = resolve(described["target"])
        self.limit = index_limit(described)
        self.kwargs = {name: self._build(value) for name, value in described["args"].items()}

    def _build(self, value: Any) -> Any:
        """An argument: tensors made, nested operators run, words decoded."""
        if isinstance(value, str):
            if value.startswith("%"):
                return self._tensor(value)
            if value.startswith("dtype:"):
                return getattr(torch, value[6:])
            return float(value[6:]) if value.startswith("float:") else value
        if isinstance(value, list):
            return [self._build(item) for item in value]
        return self._made(value) if isinstance(value, dict) and "made" in value else value

    def _tensor(self, word: str) -> Tensor:
        dtype_name, shape, marks = split_word(word)
        dtype = getattr(torch, dtype_name)
        if dtype == torch.bool:
            made = torch.rand(shape) > 0.5
        elif dtype.is_floating_point:
            made = (torch.rand(shape) + 0.1).to(dtype)
        else:
            made = torch.randint(0, self.limit, shape, dtype=dtype)
        self.num_bytes += made.nbytes
        if "@" not in marks and made.is_floating_point():
            self.hot.append(made)
        return self._leaf(made) if "*" in marks else made

    def _leaf(self, tensor: Tensor) -> Tensor:
        leaf = tensor.detach().requires_grad_()
        self.leaves.append(leaf)
        return leaf

    def _made(self, value: Mapping[str, Any]) -> Any:
        """The output of a nested operator, with the strides that it has in the segment."""
        described, number = value["made"], value["output"]
        inner = OperatorInstance(described)
        self.num_bytes += inner.num_bytes
        with torch.no_grad():
            result = inner.call()[number]
        if described["target"].split(".")[1] in VIEWS:
            self.hot += inner.hot
        elif isinstance(result, Tensor) and result.is_floating_point():
            self.hot.append(result)
        return self._leaf(result) if described["outputs"][number] == ACTIVE else result

    def call(self) -> tuple[Any, ...]:
        """Run the operator once."""
        result = self.function(**self.kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def touch(self) -> None:
        for tensor in self.hot:
            tensor.mul_(1.0)

    def touch_gradient(self) -> None:
        for tensor in self.gradients:
            tensor.mul_(1.0)

    def prepare(self) -> None:
        """Make the incoming gradients, and count what autograd keeps: distinct memory, weights left out."""
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            kept[_place(tensor)] = tensor.untyped_storage().nbytes()
            return tensor

        counting = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with torch.set_grad_enabled(bool(self.active)), counting if self.active else nullcontext():
            outputs = self.call()
        weights = {_place(t) for t in self.leaves} - {_place(t) for t in self.hot}
        self.saved_bytes = sum(size for place, size in kept.items() if place not in weights)
        self.gradients = [torch.rand_like(outputs[i]) for i in self.active if outputs[i].requires_grad]
        self.num_bytes += sum(t.nbytes for t in (*outputs, *self.gradients) if isinstance(t, Tensor))

    def forward(self) -> None:
        with torch.set_grad_enabled(bool(self.active)):
            outputs = self.call()
        self.outputs = [outputs[i] for i in self.active if outputs[i].requires_grad] if self.active else list(outputs)

    def backward(self) -> None:
        if self.gradients:
            torch.autograd.grad(self.outputs, self.leaves, self.gradients, allow_unused=True)
        self.outputs = []


def split_word(word: str) -> tuple[str, tuple[int, ...], str]:
    """``"%float32[8,64]*@"`` → data type, shape, marks."""
    dtype, _, rest = word[1:].partition("[")
    sizes, _, marks = rest.partition("]")
    return dtype, tuple(int(n) for n in sizes.split(",") if n), marks


def index_limit(described: Mapping[str, Any]) -> int:
    """Integers in the operator's tensors must lie below this: the number of classes, rows, or indices along ``dim``."""
    base, args = described["target"].split(".")[1], described["args"]
    source = args.get(CLASSES.get(base, ""), args.get("weight", args.get("self", args.get("input"))))
    shape = _shape(source)
    if not shape:
        return 2
    if base in CLASSES:
        return shape[1] if len(shape) > 1 else shape[0]
    if base.startswith("embedding"):
        return shape[0]
    dim = args.get("dim")
    return shape[dim] if isinstance(dim, int) and -len(shape) <= dim < len(shape) else min(shape)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) and value.startswith("%"):
        return split_word(value)[1]
    return ()


def operator_instance(key: str) -> OperatorInstance:
    """The instance of a key, ready to run."""
    instance = OperatorInstance(parse(key))
    instance.prepare()
    return instance
