"""Errors that the user's own module, loss or inputs raise on one engine: one sentence, and what to correct."""

import copy
import traceback
from typing import Any

import torch
from torch import nn

from trine.capture import losses
from trine.capture.traps import line_of
from trine.errors import BadInput, TrineError


def is_memory(error: BaseException) -> bool:
    """Whether this machine, not the model, is the cause."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def own_error(name: str, error: Exception) -> BadInput:
    """The error for a model of this name that does not run by itself."""
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if any(f.filename == losses.__file__ and f.name == losses.assumed_loss.__name__ for f in frames):
        return BadInput(
            f"No loss is known for what {name} returns ({what}).",
            "Without one, cross-entropy is assumed for logits, and the mean square for the shape of the input.",
            "Give the model as file.py:callable that returns a dictionary with targets and a loss.",
        )
    line = line_of(error).rstrip(":")
    correct = f"Correct {line}" if line else "Correct the model, its loss or its inputs"
    return BadInput(f"The model could not be run: {name} raises {what}.", "", f"{correct}.")


def refuse_own_error(whole: nn.Module, example: tuple[Any, ...], name: str) -> None:
    """Raise BadInput if a module that cannot be traced does not run without a trace either."""
    alone = copy.deepcopy(whole)
    try:
        with torch.random.fork_rng(devices=[]):
            alone(*example)
    except TrineError:
        raise
    except Exception as error:  # whatever the user's code raises
        if is_memory(error):
            raise
        if "FakeTensor" not in str(error):  # what the trace left in the module is not the user's
            raise own_error(name, error) from error
