"""From the name of an operator to the torch function that runs it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from trine.errors import BadInput
from trine.graph.graph import Operator, is_ref
from trine.lower import kernels, sequential, tiles  # noqa: F401  (they fill KERNELS)
from trine.lower.registry import KERNELS


def _reshape(self: torch.Tensor, size: list[int]) -> torch.Tensor:
    return self.reshape(size)


ADAPTED: dict[str, Callable[..., Any]] = {"aten.view.default": _reshape}  # a tile need not be contiguous


def resolve(target: str) -> Callable[..., Any]:
    """The function behind ``"aten.conv2d.default"`` or ``"trine.batch_norm_apply"``."""
    if target in ADAPTED:
        return ADAPTED[target]
    parts = target.split(".")
    if parts[0] == "trine":
        return KERNELS[parts[1]]
    try:
        packet = getattr(getattr(torch.ops, parts[0]), parts[1])
    except AttributeError:
        if find_spec(parts[0]) is None:
            raise BadInput(
                f"The operator {target} is not known in this process.", "The code of the model registers it.",
                "Run on threads, or put it into a package of that name.",
            ) from None  # fmt: skip
        import_module(parts[0])  # torchvision registers its own
        packet = getattr(getattr(torch.ops, parts[0]), parts[1])
    return getattr(packet, parts[2])  # type: ignore[no-any-return]


def decode(value: Any, tensors: Mapping[str, Any]) -> Any:
    """An argument as torch takes it: tensors looked up, data types and infinities restored."""
    if isinstance(value, str):
        if is_ref(value):
            return tensors[value[1:]]
        if value.startswith("dtype:"):
            return getattr(torch, value[6:])
        if value.startswith("float:"):
            return float(value[6:])
        return value
    if isinstance(value, (list, tuple)):
        return [decode(item, tensors) for item in value]
    if isinstance(value, dict):
        return {key: decode(item, tensors) for key, item in value.items()}
    return value


def run_operators(operators: tuple[Operator, ...], tensors: dict[str, Any]) -> None:
    """Interpret operators one by one, writing their outputs into ``tensors``."""
    for op in operators:
        result = resolve(op.target)(**{key: decode(value, tensors) for key, value in op.args.items()})
        results = result if isinstance(result, (tuple, list)) else (result,)
        for name, item in zip(op.outputs, results, strict=False):
            if name is not None:
                tensors[name] = item
