"""Samples of operators: arguments whose tensors are drawn anew for each example."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from tests.laws.pieces import Case, build


@dataclass(frozen=True)
class Values:
    """A tensor to draw."""

    draw: Callable[[torch.Generator], torch.Tensor]


def ints(*shape: int) -> Values:
    """Small integers as float64."""
    return Values(lambda g: torch.randint(-3, 4, shape, generator=g).double())


def reals(*shape: int) -> Values:
    return Values(lambda g: torch.randn(shape, generator=g, dtype=torch.float64))


def positive(*shape: int) -> Values:
    return Values(lambda g: torch.rand(shape, generator=g, dtype=torch.float64) + 0.1)


def index(high: int, *shape: int) -> Values:
    return Values(lambda g: torch.randint(0, high, shape, generator=g))


def distinct(high: int, rows: int, count: int) -> Values:
    """In each row so many different numbers below ``high``."""
    return Values(lambda g: torch.rand(rows, high, generator=g).argsort(1)[:, :count])


def bools(*shape: int) -> Values:
    return Values(lambda g: torch.randint(0, 2, shape, generator=g).bool())


@dataclass(frozen=True)
class Sample:
    """exact: pieces are bit-equal.  nan: rubbish outside may be NaN.  num_rules: how many are expected; None: some."""

    target: str
    args: dict[str, Any] = field(default_factory=dict)
    exact: bool = True
    nan: bool = True
    num_rules: int | None = None
    unused: tuple[int, ...] = ()
    frozen: tuple[str, ...] = ()  # arguments that have no gradient

    def case(self, random: Random) -> Case:
        """The sample with drawn values."""
        generator = torch.Generator().manual_seed(random.getrandbits(62))

        def draw(item: Any) -> Any:
            if isinstance(item, Values):
                return item.draw(generator)
            return [draw(each) for each in item] if isinstance(item, list) else item

        return build(self.target, {name: draw(item) for name, item in self.args.items()}, self.unused)

    def __str__(self) -> str:
        shown = [
            f"{name}={item}"
            for name, item in self.args.items()
            if not isinstance(item, (Values, list)) or name in SHOWN
        ]
        return " ".join([self.target.replace(".default", ""), *shown]).replace("aten.", "").replace(" ", "_")


SHOWN = ("stride", "padding", "dilation", "kernel_size", "pad", "dim", "size", "dims", "output_size")


def sample(name: str, /, *, exact: bool = True, nan: bool = True, rules: int | None = None, **args: Any) -> Sample:
    """A sample by its short name: ``linear``, ``add.Tensor`` or ``trine.addmm``."""
    full = name if name.startswith("trine.") else f"aten.{name}" if "." in name else f"aten.{name}.default"
    unused, frozen = args.pop("unused", ()), args.pop("frozen", ())
    return Sample(full, args, exact, nan, rules, unused, frozen)
