"""The samples of PyTorch's operator database, as trine and DTensor are both asked for them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class OpCell:
    """One operator of the database."""

    key: str
    gigabytes = 1.5
    apart = False

    @property
    def group(self) -> int:
        """Operators share workers by chance."""
        return sum(self.key.encode()) % 40


@cache
def database() -> dict[str, Any]:
    """Operators by their full name."""
    known = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
    return {name: op for name, op in known.items() if torch.float64 in op.dtypes}


def samples(name: str) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """The samples of an operator: a function of its tensors, and these."""
    op = database()[name]
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=False):
        leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def call(*tensors: torch.Tensor, leaves: Any = leaves, at: Any = at, structure: Any = structure) -> Any:
            full = list(leaves)
            for place, tensor in zip(at, tensors, strict=True):
                full[place] = tensor
            given, args, kwargs = pytree.tree_unflatten(full, structure)
            return op.op(given, *args, **kwargs)

        yield call, [leaves[i] for i in at]
