"""Operators of a segment that may overwrite their input: what torchvision writes as ``ReLU(inplace=True)`` and ``out +=
identity``, and an export makes functional.  One tensor less is written and read; the numbers are the same bits.

It is safe where nothing reads the input again: no operator of the segment, no other segment, and not the backward pass
of the operator that made it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trine.graph.graph import Operator, refs
from trine.program.program import Segment

KEEP_NO_OUTPUT = (
    "trine.batch_norm",
    "trine.batch_norm_apply",
    "trine.batch_norm_eval",
    "aten.conv2d.default",
    "aten.add.Tensor",
)  # fmt: skip  makers whose backward pass does not read what they made


def _add(self: Tensor, other: Any, alpha: float = 1) -> Tensor:
    """self + alpha · other, into ``self`` where that has the size and type of the sum."""
    if isinstance(other, Tensor) and (other.shape, other.dtype) == (self.shape, self.dtype):
        return self.add_(other, alpha=alpha)
    return torch.add(self, other, alpha=alpha)


IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "aten.relu.default": torch.ops.aten.relu_.default,
    "aten.hardtanh.default": torch.ops.aten.hardtanh_.default,
    "aten.add.Tensor": _add,
}


def overwriting(segment: Segment) -> dict[str, Callable[..., Tensor]]:
    """Operators by name that may overwrite their first input, and the function that does it."""
    uses = Counter(name for op in segment.operators for name in refs(op.args))
    uses.update(f"t{tile}" for tile in segment.outputs)
    makers = {op.outputs[0]: op for op in segment.operators}
    return {
        op.name: IN_PLACE[op.target] for op in segment.operators if op.target in IN_PLACE and _is_free(op, makers, uses)
    }


def _is_free(op: Operator, makers: dict[str | None, Operator], uses: Counter[str]) -> bool:
    given = op.args["self"]
    name = given[1:] if isinstance(given, str) else ""
    maker = makers.get(name)
    return maker is not None and maker.target in KEEP_NO_OUTPUT and uses[name] == 1
