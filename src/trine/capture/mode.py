"""Training or evaluation mode, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torch import nn


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The module in one mode; flags of submodules that differ on purpose stay if the module is in that mode already."""
    flags = {part: part.training for part in module.modules()}
    if module.training != training:
        with suppress(NotImplementedError):  # an exported program stays in the mode in which it was exported
            module.train(training)
    try:
        yield
    finally:
        for part, flag in flags.items():
            part.training = flag
