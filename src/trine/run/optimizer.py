"""An optimizer as a value: it goes to JSON and to other processes, and each engine makes its own from it."""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from trine.errors import BadInput, UnknownName
from trine.program.program import Program

KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
}  # fmt: skip

ELEMENTWISE = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.ASGD,
)  # fmt: skip


def refuse_cut_weights(optimizer: Callable[[list[Tensor]], torch.optim.Optimizer], programs: Sequence[Program]) -> None:
    """Raise BadInput for an optimizer that looks at more than one element at a time where weights are cut: it would
    take a tile for the whole."""
    kind = type(optimizer([torch.zeros(1, requires_grad=True)]))
    if kind in ELEMENTWISE:
        return
    for program in programs:
        for tile, name in program.parameters.items():
            if program.tiles[tile].local_shape != program.tiles[tile].shape:
                raise BadInput(
                    f"The optimizer {kind.__name__} was given, and the plan keeps {name} cut.",
                    f"For cut weights: {', '.join(each.__name__ for each in ELEMENTWISE)}.",
                    "Choose one of these, or a plan that cuts the batch only.",
                )  # fmt: skip


class OptimizerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A torch optimizer by name; called with parameters it makes one.

    A setting that is left out (None) has torch's own default for this optimizer.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.01
    weight_decay: float | None = None
    momentum: float | None = None
    dampening: float | None = None
    nesterov: bool | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None
    amsgrad: bool | None = None

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise UnknownName("optimizer", self.name, KINDS)
        known = list(inspect.signature(KINDS[self.name]).parameters)
        strange = [setting for setting in self.settings() if setting not in known]
        if strange:
            possible = [f for f in self.__struct_fields__ if f in known]
            raise BadInput(
                f"{strange[0]} was given for the optimizer {self.name}, which has no such setting.",
                f"Its settings: {', '.join(possible)}.", f"Leave {strange[0]} out, or choose another optimizer.",
            )  # fmt: skip
        for setting, value in self.settings().items():
            numbers = value if isinstance(value, tuple) else (value,)
            top = 1.0 if setting == "betas" else math.inf
            if not all(0 <= number < top for number in numbers):
                raise BadInput(
                    f"The optimizer {self.name} was given {setting} = {value}.",
                    "It is at least 0" + (" and below 1." if setting == "betas" else "."), f"Change {setting}.",
                )  # fmt: skip
        if self.nesterov and (not self.momentum or self.dampening):
            raise BadInput(
                "nesterov was given for sgd.", "It needs a momentum and no dampening.", "For example: momentum=0.9.",
            )  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """What was given, by torch's names."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "name"}
        return {name: value for name, value in fields.items() if value is not None}

    def __call__(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """A torch optimizer of these parameters."""
        kind: Any = KINDS[self.name]
        made: torch.optim.Optimizer = kind(list(parameters), **self.settings())
        return made
