"""What a person may ask of a model beside its name: settings, weights, shapes, type and seed."""

import ast
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from trine.errors import BadInput


class Setting(Protocol):
    """One ``--set key=value``; the value is text."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...


class Shape(Protocol):
    """One ``--input``: a shape without the batch, and a data type."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


class Options(Protocol):
    """The model's options as the command line gives them."""

    @property
    def set(self) -> Sequence[Setting]: ...
    @property
    def load(self) -> Path | None: ...
    @property
    def size(self) -> int | None: ...
    @property
    def seq(self) -> int | None: ...
    @property
    def input(self) -> Sequence[Shape]: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def seed(self) -> int | None: ...


@dataclass(frozen=True)
class Wishes:
    """The options with their defaults; each form of a model takes what it can honour and ``refuse`` names the rest."""

    set: tuple[Setting, ...] = ()
    load: Path | None = None
    size: int | None = None
    seq: int | None = None
    input: tuple[Shape, ...] = ()
    dtype: str | None = None
    seed: int | None = None
    batch: int = 2
    meta: bool = False

    @staticmethod
    def of(options: Options, batch: int, meta: bool) -> "Wishes":
        """From options, and the global batch of inputs that are made; ``meta``: weights without data."""
        return Wishes(
            tuple(options.set), options.load, options.size, options.seq, tuple(options.input), options.dtype,
            options.seed, batch, meta,
        )  # fmt: skip

    @property
    def settings(self) -> dict[str, Any]:
        """Settings as keyword arguments; a dotted key makes a dictionary."""
        result: dict[str, Any] = {}
        for setting in self.set:
            place = result
            *outer, last = setting.key.split(".")
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = literal(setting.value)
        return result

    def refuse(self, model: str, **reasons: str) -> None:
        """Raise BadInput for each option that was given though the model cannot honour it."""
        for name, reason in reasons.items():
            if getattr(self, name) not in (None, ()):
                raise BadInput(
                    f"--{name} was given for {model}, which cannot honour it.", reason, f"Leave --{name} out."
                )

    def device(self) -> AbstractContextManager[Any]:
        """Within it, new tensors have no data if that was asked for."""
        return torch.device("meta") if self.meta else nullcontext()

    def torch_dtype(self) -> torch.dtype | None:
        """The type of the weights, if asked for."""
        return getattr(torch, self.dtype) if self.dtype else None


def literal(text: str) -> Any:
    """The typed value of a setting: a Python literal, true, false or none, else the text itself."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
