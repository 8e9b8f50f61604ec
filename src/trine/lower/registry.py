"""The table of trine's own operators: name → torch function."""

from collections.abc import Callable
from typing import Any, TypeVar

KERNELS: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Decorator: ``trine.NAME`` in a graph runs this function."""
    KERNELS[function.__name__] = function
    return function
