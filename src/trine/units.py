"""Units: the one place where a quantity with a unit is parsed and printed.

Inside trine every number is in its base unit, named in the variable: `memory_bytes`, `bandwidth_bytes_per_s`, `time_s`.
People write and read "80 GiB", "450 GB/s", "3 us", "100ms", "312 TFLOP/s".  Spelling is exact ("GB/s" are bytes,
"Gbit/s" are bits), the space before the unit is optional.  A quantity prints in two ways: `format` for reading (few
digits), and `exact` for files (the shortest text that parses back to the same number).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from re import compile as pattern
from typing import final

from trine.errors import BadInput

_NUMBER_AND_UNIT = pattern(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*([^\s\d]\S*)?\s*")


@final
@dataclass(frozen=True)
class Quantity:
    """One kind of quantity: its units, and how it is printed."""

    name: str
    """What an error calls it, with its article: "a time"."""
    units: Mapping[str, Fraction]
    """Each accepted spelling and its size in base units; "" if a bare number is accepted."""
    ladder: tuple[str, ...]
    """The units that `format` chooses from, ascending; one of them is the base unit."""
    example: str

    def parse(self, text: str) -> float:
        """Return the number of base units that `text` ("3 us") says; raise BadInput if it says none."""
        return float(self._fraction(text))

    def parse_whole(self, text: str) -> int:
        """Return `parse` rounded to a whole number of base units, exact where floats are not."""
        return round(self._fraction(text))

    def format(self, value: float, digits: int = 3) -> str:
        """Return `value` base units for a reader: `digits` significant digits, no digit before the point dropped."""
        if value < 0:
            return f"-{self.format(-value, digits)}"
        base = next(unit for unit in self.ladder if self.units[unit] == 1)
        if value == 0 or not isfinite(value):
            return self._join(f"{value:g}", base)
        chosen, *larger = self.ladder
        number = _rounded(Fraction(value) / self.units[chosen], digits)
        for unit in larger:
            if Fraction(number) * self.units[chosen] < self.units[unit]:
                break
            scaled = _rounded(Fraction(value) / self.units[unit], digits)
            number, chosen = "1" if Fraction(scaled) < 1 else scaled, unit
        return self._join(number, chosen)

    def exact(self, value: float) -> str:
        """Return the shortest text that `parse` turns into `value` again; `value` is finite and not negative."""
        texts: list[tuple[bool, int, int, str]] = []
        for unit, size in self.units.items():
            number = _plain(float(Fraction(value) / size))
            text = self._join(number, unit)
            if self.parse(text) == value:
                texts.append(("e" in number, len(text), len(texts), text))
        return min(texts)[-1]

    def _fraction(self, text: str) -> Fraction:
        found = _NUMBER_AND_UNIT.fullmatch(text)
        if found is None:
            raise BadInput(
                f"{text!r} is not {self.name}.",
                "It is a number of 0 or more and a unit.",
                f"For example: {self.example}.",
            )
        number, unit = found[1], found[2] or ""
        if unit not in self.units:
            fault = f"the unit {unit!r} is unknown" if unit else "the unit is missing"
            known = ", ".join(name or "no unit" for name in self.units)
            raise BadInput(
                f"{text!r} is not {self.name}: {fault}.", f"Possible: {known}.", f"For example: {self.example}."
            )
        return Fraction(number) * self.units[unit]

    @staticmethod
    def _join(number: str, unit: str) -> str:
        return f"{number}{unit}" if not unit or unit.startswith("/") else f"{number} {unit}"


def _rounded(value: Fraction, digits: int) -> str:
    """Return `value` (above 0) with `digits` significant digits and without an exponent above 1."""
    near = float(value)
    return f"{near:.0f}" if near >= 10 ** (digits - 1) else _plain(float(f"{near:.{digits}g}"))


def _plain(value: float) -> str:
    """Return the shortest digits that give `value` again, "3" rather than "3.0"."""
    return repr(value).removesuffix(".0")


def _powers(prefixes: str, step: int, unit: str) -> dict[str, Fraction]:
    """Return {"kB": 1000, "MB": 1000000, ...} for the space-separated `prefixes`, each `step` times the last."""
    return {f"{prefix}{unit}": Fraction(step) ** power for power, prefix in enumerate(prefixes.split(), start=1)}


_BYTES = {"B": Fraction(1)} | _powers("k M G T P", 1000, "B") | _powers("Ki Mi Gi Ti Pi", 1024, "B")
_BITS = {"bit": Fraction(1, 8)} | {
    f"{prefix}bit": Fraction(1000**power, 8) for power, prefix in enumerate("kMGT", start=1)
}
_FLOPS = {"FLOP": Fraction(1)} | _powers("k M G T P E", 1000, "FLOP")

BYTES = Quantity(
    "an amount of memory", _BYTES | {"KB": Fraction(1000)}, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), "80 GiB"
)
BANDWIDTH = Quantity(
    "a bandwidth",
    {f"{unit}/s": size for unit, size in (_BYTES | _BITS).items()},
    ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "450 GB/s",
)
TIME = Quantity(
    "a time",
    {
        "ns": Fraction(1, 10**9),
        "us": Fraction(1, 10**6),
        "µs": Fraction(1, 10**6),
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "min": Fraction(60),
        "m": Fraction(60),
        "h": Fraction(3600),
        "d": Fraction(86400),
    },
    ("ns", "us", "ms", "s", "min", "h", "d"),
    "100 ms",
)
COUNT = Quantity(
    "a count",
    {"": Fraction(1)} | _powers("k M B T", 1000, "") | {"K": Fraction(1000), "G": Fraction(10**9)},
    ("", "k", "M", "B", "T"),
    "25.6 M",
)
FLOPS = Quantity("an amount of arithmetic", _FLOPS, tuple(_FLOPS), "3.6 GFLOP")
FLOPS_PER_S = Quantity(
    "a speed of arithmetic",
    {f"{unit}/s": size for unit, size in _FLOPS.items()},
    tuple(f"{unit}/s" for unit in _FLOPS),
    "312 TFLOP/s",
)
RATE = Quantity("a rate", {"/s": Fraction(1), "": Fraction(1), "/min": Fraction(1, 60)}, ("/s",), "200/s")
