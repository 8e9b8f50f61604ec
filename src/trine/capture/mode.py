"""Training or evaluation mode, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from trine.errors import BadInput


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The module in one mode; flags of submodules that differ on purpose stay if the module is in that mode already."""
    flags = {part: part.training for part in module.modules()}
    if module.training != training:
        _switch(module, training)
    try:
        yield
    finally:
        for part, flag in flags.items():
            part.training = flag


def _switch(module: nn.Module, training: bool) -> None:
    try:
        module.train(training)
    except NotImplementedError as error:  # an exported program
        mode = "training" if training else "evaluation"
        raise BadInput(
            f"The exported program cannot be put into {mode} mode.",
            "A .pt2 file has the one mode in which it was exported.",
            f"Export the model again in {mode} mode, or give its Python source.",
        ) from error
