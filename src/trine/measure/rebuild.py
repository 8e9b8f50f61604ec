"""From the key of a local operator to something that can run: its tensors, its call, its gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trine.cost.keys import ACTIVE, parse
from trine.lower.targets import resolve

LABELS = {"cross_entropy": "input", "vocab_state": "input", "vocab_merge": "state", "nll_loss": "self"}
"""Operators whose integer argument names a class, and the argument whose dimension 1 counts the classes."""

Run = Callable[[], tuple[Any, ...]]


class OperatorInstance:
    """One local operator with tensors of its own, run as the executor runs it: inputs detached, gradients for what is
    active.  Tensors are random and positive; integers are valid indices."""

    def __init__(self, key: str, overhead_s: float = 0.0) -> None:
        described = parse(key)
        self.hot: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.num_bytes = self.saved_bytes = 0
        self.outputs: tuple[Any, ...] = ()
        self.active = [i for i, use in enumerate(described["outputs"]) if use == ACTIVE]
        self.gradients: list[Tensor] = []
        self.function = resolve(described["target"])
        self.kwargs = {name: self._build(value, described, name) for name, value in described["args"].items()}

    def _build(self, value: Any, described: dict[str, Any], argument: str) -> Any:
        """An argument: tensors made, nested operators run, words decoded."""
        if isinstance(value, str):
            if value.startswith("%"):
                return self._tensor(value, described, argument)
            if value.startswith("dtype:"):
                return getattr(torch, value[6:])
            return float(value[6:]) if value.startswith("float:") else value
        if isinstance(value, list):
            return [self._build(item, described, argument) for item in value]
        if isinstance(value, dict) and "made" in value:
            return self._made(value)
        return value

    def _tensor(self, word: str, described: dict[str, Any], argument: str) -> Tensor:
        dtype_name, _, rest = word[1:].partition("[")
        sizes, _, marks = rest.partition("]")
        shape = [int(n) for n in sizes.split(",") if n]
        dtype = getattr(torch, dtype_name)
        if dtype == torch.bool:
            made = torch.rand(shape) > 0.5
        elif dtype.is_floating_point or dtype.is_complex:
            made = (torch.rand(shape) + 0.1).to(dtype)
        else:
            made = torch.randint(0, index_limit(described, argument), shape, dtype=dtype)
        self.num_bytes += made.nbytes
        if "@" not in marks and made.is_floating_point():
            self.hot.append(made)
        return self._leaf(made) if "*" in marks else made

    def _leaf(self, tensor: Tensor) -> Tensor:
        leaf = tensor.detach().requires_grad_()
        self.leaves.append(leaf)
        return leaf

    def _made(self, value: dict[str, Any]) -> Any:
        """The output of a nested operator, with the strides that it has in the segment."""
        inner = OperatorInstance.described(value["made"])
        self.num_bytes += inner.num_bytes
        self.hot += inner.hot
        with torch.no_grad():
            result = inner.call()[value["output"]]
        active = value["made"]["outputs"][value["output"]] == ACTIVE
        return self._leaf(result) if active and isinstance(result, Tensor) else result

    @classmethod
    def described(cls, described: dict[str, Any]) -> "OperatorInstance":
        """From a parsed key."""
        made = cls.__new__(cls)
        made.hot, made.leaves, made.gradients = [], [], []
        made.num_bytes = made.saved_bytes = 0
        made.outputs = ()
        made.active = [i for i, use in enumerate(described["outputs"]) if use == ACTIVE]
        made.function = resolve(described["target"])
        made.kwargs = {name: made._build(item, described, name) for name, item in described["args"].items()}
        return made

    def call(self) -> tuple[Any, ...]:
        """Run the operator once."""
        result = self.function(**self.kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def touch(self) -> None:
        for tensor in self.hot:
            tensor.mul_(1.0)
