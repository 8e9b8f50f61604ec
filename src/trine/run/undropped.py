"""Dropout switched off for a while, whoever calls it: without a graph its draws cannot be repeated on other rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

NAMES = (
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
)  # fmt: skip
DROPPING = {
    getattr(place, name)
    for place in (functional, torch)
    for stem in NAMES
    for name in (stem, stem + "_")
    if hasattr(place, name)
}


class _Off(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPPING:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            args, kwargs = args[:4], {**kwargs, "dropout_p": 0.0} | ({"is_causal": args[5]} if len(args) > 5 else {})
        return func(*args, **kwargs)


@contextmanager
def without_dropout() -> Iterator[None]:
    """Within it, torch's dropout functions give back what they were given."""
    with _Off():
        yield
