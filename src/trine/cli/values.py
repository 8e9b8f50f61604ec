"""From the words of the command line to values: one function a kind of value, each with an error that teaches.

Every parser takes the word and the option's name and raises BadInput naming both.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

from trine.cluster.what_if import CHANGES, Change
from trine.errors import BadInput, UnknownName
from trine.units import Quantity

TYPES = ("float32", "float64", "bfloat16", "float16")
_SHAPE = re.compile(r"[1-9]\d{0,9}(x[1-9]\d{0,9})*")


@dataclass(frozen=True)
class InputShape:
    """The shape of one example input without its batch dimension, and its data type."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Setting:
    """One `--set key=value`; the value is still text, since only the model knows its type."""

    key: str
    value: str


def whole(low: int, high: int | None = None) -> Callable[[str, str], int]:
    """Return the parser of a whole number from `low` to `high`, both included."""

    def parse(text: str, option: str) -> int:
        number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else -inf
        if low <= number <= (inf if high is None else high):
            return int(number)
        possible = f"It takes a whole number of {low} or more." if high is None else f"It takes {low} to {high}."
        raise BadInput(f"{option} {text} was given.", possible, f"For example: {option} {max(low, min(4, high or 4))}")

    return parse


def quantity(kind: Quantity) -> Callable[[str, str], float]:
    """Return the parser of a quantity above 0, in base units."""

    def parse(text: str, option: str) -> float:
        try:
            value = kind.parse(text)
        except BadInput as error:
            raise BadInput(f"{option}:", str(error)) from error
        if value == 0:
            raise BadInput(
                f"{option} {text} was given.", "It takes more than 0.", f"For example: {option} {kind.example}"
            )
        return value

    return parse


def choice(*names: str, **aliases: str) -> Callable[[str, str], str]:
    """Return the parser of one of `names`; `aliases` maps other spellings (with _ for -) to these."""
    spelled = {name: name for name in names} | {alias.replace("_", "-"): name for alias, name in aliases.items()}

    def parse(text: str, option: str) -> str:
        if text not in spelled:
            raise UnknownName(f"{option} value", text, spelled, change=f"Possible: {', '.join(spelled)}.")
        return spelled[text]

    return parse


def several(parse_one: Callable[[str, str], str]) -> Callable[[str, str], tuple[str, ...]]:
    """Return the parser of a comma-separated list without repetitions."""

    def parse(text: str, option: str) -> tuple[str, ...]:
        values = [parse_one(word.strip(), option) for word in text.split(",")]
        if len(set(values)) < len(values):
            raise BadInput(f"{option} {text} names one thing twice.", "Name each once.")
        return tuple(values)

    return parse


def word(text: str, option: str) -> str:
    """Return a name that only the model or the cluster can judge."""
    if not text:
        raise BadInput(f"{option} was given nothing.", "It takes a name.", "Give one, or leave the option out.")
    return text


def degrees(text: str, option: str) -> tuple[int, ...]:
    """Return (2, 2) for "2x2": the sizes of one or more mesh axes."""
    if not _SHAPE.fullmatch(text):
        raise BadInput(
            f"{option} {text} was given.",
            "It takes a whole number of 1 or more, or several with an x between them.",
            f"For example: {option} 4, or {option} 2x2 for a grid of engines.",
        )
    return tuple(int(part) for part in text.split("x"))


def shares(text: str, option: str) -> tuple[float, ...]:
    """Return (3.0, 1.0) for "3:1": how much each engine gets."""
    if re.fullmatch(r"\d*\.?\d+(:\d*\.?\d+)+", text):
        parts = tuple(float(part) for part in text.split(":"))
        if min(parts) > 0 and isfinite(sum(parts)):
            return parts
    raise BadInput(
        f"{option} {text} was given.", "It takes a number above 0 for each engine.", f"For example: {option} 3:1"
    )


def setting(text: str, option: str) -> Setting:
    """Return the key and the value of "key=value"."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BadInput(f"{option} {text} was given.", "It takes key=value.", f"For example: {option} num_classes=10")
    return Setting(key.strip(), value.strip())


def change(text: str, option: str) -> Change:
    """Return what changes and by which factor, from "link=2x"."""
    what, equals, factor = text.partition("=")
    if what in CHANGES and equals and re.fullmatch(r"\d{0,6}\.?\d{1,6}x?", factor) and float(factor.rstrip("x")) > 0:
        return Change(what, float(factor.rstrip("x")))
    raise BadInput(
        f"{option} {text} was given.", f"It takes one of {', '.join(CHANGES)} and a factor.",
        f"For example: {option} link=2x",
    )  # fmt: skip


def input_shape(text: str, option: str) -> InputShape:
    """Return the shape and type of "3x224x224" or "128:int64"; the type is float32 unless said."""
    shape, _, dtype = text.partition(":")
    if not _SHAPE.fullmatch(shape):
        raise BadInput(
            f"{option} {text} was given.",
            "It takes the shape of one input without the batch, and its type if that is not float32.",
            f"For example: {option} 3x224x224, or {option} 128:int64",
        )
    return InputShape(tuple(int(part) for part in shape.split("x")), dtype or "float32")


def file_to_read(text: str, option: str) -> Path:
    """Return the path of a file that exists."""
    if not Path(text).is_file():
        raise BadInput(f"{option} {text} was given.", "There is no such file.", "Check the path.")
    return Path(text)


def file_to_write(text: str, option: str) -> Path:
    """Return the path of a file that can be written, tried now, so that a long run does not end in an error."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInput(
            f"{option} {text} was given.", "It takes a file in a folder that exists.", "Make the folder first."
        )
    there = path.exists()
    try:
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise BadInput(
            f"{option} {text} was given, which cannot be written: {error.strerror}.", "", "Give another path."
        ) from error
    return path


def at_most_one(taken: Sequence[str]) -> None:
    """Raise BadInput if more than one of the options `taken` was given."""
    if len(taken) > 1:
        raise BadInput(f"{' and '.join(taken)} were given together.", "They say the same thing twice.", "Keep one.")
