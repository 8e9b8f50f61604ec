"""Tables of measurements: comma-separated files, one row a measurement, and what kind of measurement they hold.

The kinds are told by their columns, which are those of docs/validate.md.  The column ``use`` says what a row is for:
blank to be predicted and scored, ``scale`` to give its group one constant, ``constants`` if constants in trine's code
were fitted on it.  Only the first are scored.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from trine.errors import BadInput, alike, listing

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "latency": (("device", "model", "threads"), ("latency_min_ms", "latency_avg_ms")),
    "collectives": (("hardware", "collective", "ranks", "nodes", "bytes"), ("time_us",)),
    "memory": (("quantity", "unit", "hidden", "layers", "heads", "seq", "micro_batch", "tp", "pp"), ("value",)),
    "training": (
        ("hardware", "gpus", "global_batch"),
        ("step_time_s", "step_time_s_derived", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s"),
    ),
}
"""For each kind: the columns that it needs, and those of which one must be there, with the measured value."""

USES = ("", "scale", "constants")
LARGEST_FILE_BYTES = 64 * 2**20
LARGEST_WHOLE = 10**15
REMARK = re.compile(r"\s*\([^()]*\)$")


class Line(msgspec.Struct, frozen=True):
    """One row of a table, with where it stands.  Numbers are read when they are asked for."""

    file: str
    number: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """What stands there, empty if nothing does or there is no such column."""
        return self.cells.get(column, "")

    def number_or_none(self, column: str) -> float | None:
        """The number that stands there, with or without a remark in brackets behind it; None if nothing does.  Raises
        BadInput for what is none, or not above 0."""
        said = self.text(column)
        if not said:
            return None
        try:
            value = float(REMARK.sub("", said))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0:
            raise BadInput(
                f"{self.file}, row {self.number}, column {column}: {said!r} was found.",
                "It takes a number above 0 without a unit (the unit is in the column's name).",
                "Correct it, or leave it blank if it is not known.",
            )
        return value

    def whole_or_none(self, column: str) -> int | None:
        """The same for a whole number."""
        value = self.number_or_none(column)
        if value is not None and (value > LARGEST_WHOLE or value != int(value)):
            raise BadInput(
                f"{self.file}, row {self.number}, column {column}: {self.text(column)!r} was found.",
                f"It takes a whole number of at most {LARGEST_WHOLE:,}.",
                "Correct it, or leave it blank if it is not known.",
            )
        return None if value is None else int(value)

    @property
    def use(self) -> str:
        said = self.text("use")
        if said not in USES:
            raise BadInput(
                f"{self.file}, row {self.number}, column use: {said!r} was found.",
                "It is blank (scored), scale (gives its group one constant) or constants (not scored).",
                "Choose one of these.",
            )
        return said


class Measurements(msgspec.Struct, frozen=True):
    """One file."""

    file: str
    kind: str
    lines: tuple[Line, ...]


def read_table(path: Path) -> Measurements:
    """Read one table.  Raises BadInput, naming file, row and column, for what cannot be read."""
    lines = tuple(_lines(path))
    header = lines[0].cells if lines else {}
    kind = _kind(path, tuple(header))
    for line in lines:
        _ = line.use
    return Measurements(str(path), kind, lines)


def _lines(path: Path) -> Iterator[Line]:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise BadInput(f"{path} was given.", f"A table has at most {LARGEST_FILE_BYTES // 2**20} MiB.", "Cut it.")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = [_plain(name) for name in next(reader, [])]
            _check_header(path, header)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise BadInput(
                        f"{path}, row {reader.line_num}: {len(cells)} cells were found.",
                        f"The header has {len(header)} columns.",
                        "Put a text with commas in quotes.",
                    )
                yield Line(str(path), reader.line_num, dict(zip(header, map(_plain, cells), strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"{path} could not be read as a table: {error}.",
            "It takes comma-separated values in UTF-8.",
            "Save it so.",
        ) from error


def _plain(cell: str) -> str:
    """The text without space around it, characters that steer a terminal spelled out."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cell.strip())


def _check_header(path: Path, header: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        raise BadInput(
            f"{path} has the column {twice[0]!r} {header.count(twice[0])} times.",
            "Each column has a name of its own.",
            "Rename or remove one.",
        )


def _kind(path: Path, header: tuple[str, ...]) -> str:
    if not header:
        raise BadInput(
            f"{path} has no rows.",
            "A table has a header and a row for each measurement.",
            "docs/validate.md lists the columns of each kind.",
        )
    shortest: tuple[str, tuple[str, ...]] | None = None
    for kind, (needed, measured) in KINDS.items():
        missing = tuple(name for name in needed if name not in header)
        if not any(name in header for name in measured):
            missing += (" or ".join(measured),)
        if not missing:
            return kind
        if shortest is None or len(missing) < len(shortest[1]):
            shortest = kind, missing
    assert shortest is not None  # there is more than one kind
    kind, missing = shortest
    near = [f"{other!r}" for name in missing for other in alike(name.split(" or ")[0], header)[:1] if other != name]
    hint = f" ({listing(near)} is not that: units are in the names)" if near else ""
    raise BadInput(
        f"{path} has none of the sets of columns that can be predicted; the nearest kind, {kind}, lacks "
        f"{listing(missing)}{hint}.",
        f"It has the columns {listing(header)}.",
        "docs/validate.md lists the columns of each kind.",
    )
