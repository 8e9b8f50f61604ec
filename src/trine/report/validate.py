"""`trine validate`: predictions beside measurements that others published, or one's own.

Each row of each table is predicted, or it is said why not; errors are shown by table and group.  Rows on which a
constant was fitted (column ``use``) are shown and saved, and never scored.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trine.errors import BadInput
from trine.report.collective_rows import collective_outcomes
from trine.report.latency_rows import latency_outcomes
from trine.report.memory_rows import memory_outcomes
from trine.report.replica_rows import replica_outcomes
from trine.report.score import Outcome, Score, score, together, with_scales
from trine.report.tables import Line, Measurements, read_table
from trine.report.training_rows import training_outcomes
from trine.report.write import write_file

if TYPE_CHECKING:
    from trine.cli.options import Options, OutputOptions

FOLDER = Path("bench/validate")
"""Where tables are looked for if none is given, from the current directory."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are judged together: how many there are and are marked to give constants, the figures of those that
    are scored, the scale that marked rows gave, and for those that could not be predicted the reasons and how many."""

    file: str
    name: str
    num_rows: int
    num_marked: int
    score: Score | None
    scale: float | None
    reasons: dict[str, int]


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """What the verb answers."""

    date: str
    groups: tuple[Group, ...]
    rows: tuple[Outcome, ...]


def validate(paths: Sequence[Path]) -> Validation:
    """Predict every row of these tables.  Raises BadInput for a table that cannot be read."""
    rows = [row for path in paths for row in outcomes(read_table(path))]
    grouped = together(rows, lambda row: (row.file, row.group))
    return Validation(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        groups=tuple(_group(members) for members in grouped.values()),
        rows=tuple(rows),
    )


def outcomes(table: Measurements) -> list[Outcome]:
    """Every row of one table, in its order."""
    if table.kind == "latency":
        found = latency_outcomes(table.lines)
    elif table.kind == "collectives":
        found = with_scales(collective_outcomes(table.lines))
    elif table.kind == "memory":
        found = with_scales(memory_outcomes(table.lines))
    else:
        transformers = [line for line in table.lines if not _is_net(line)]
        nets = [line for line in table.lines if _is_net(line)]
        found = with_scales(training_outcomes(transformers)) + replica_outcomes(nets)
    return sorted(found, key=lambda row: row.row)


def _is_net(line: Line) -> bool:
    """Whether it is an image net on replicas: it has a model and none of a transformer's sizes."""
    return bool(line.text("model")) and not any(line.text(name) for name in ("hidden", "layers", "heads", "seq"))


def _group(rows: Sequence[Outcome]) -> Group:
    return Group(
        file=rows[0].file,
        name=rows[0].group,
        num_rows=len(rows),
        num_marked=sum(bool(row.use) for row in rows),
        score=score(rows),
        scale=next((row.scale for row in rows if row.scale is not None), None),
        reasons=dict(Counter(row.reason for row in rows if row.predicted is None)),
    )


def tables(given: Sequence[Path]) -> Sequence[Path]:
    """The tables that were given, or those of the folder where they are kept."""
    found = given or sorted(FOLDER.glob("*.csv"))
    if not found:
        raise BadInput(
            f"No table was given, and there is none in {FOLDER}/ below this folder.",
            "A table holds one measurement in a row; docs/validate.md lists the columns.",
            "For example: trine validate measured.csv",
        )
    return found


def run(options: "Options") -> int:
    """The verb.  0: rows were predicted; 1: none could be."""
    found = validate(tables(options.tables.files))
    if options.output.json is not None:
        write_file(options.output.json, as_json(found))
    width = None if sys.stdout.isatty() else WIDTH
    show(Console(highlight=False, width=width), found, options.output)
    return 0 if any(row.predicted is not None for row in found.rows) else 1


def as_json(found: Validation) -> bytes:
    """Everything, each row with its error."""
    rows = [{**msgspec.to_builtins(row), "error": row.error} for row in found.rows]
    text = msgspec.json.encode({**msgspec.to_builtins(found), "rows": rows})
    return msgspec.json.format(text) + b"\n"


WIDTH = 120  # columns where the output is no terminal
COLUMNS = ("n", "mean", "p90", "max", "bias", "rank", "regret", "beside")


def show(console: Console, found: Validation, output: "OutputOptions") -> None:
    """A block for each table: a line a group, then the reasons; ``verbose``: every row; ``quiet``: the lines only."""
    for file, groups in together_by_file(found.groups).items():
        console.print(f"[bold]{escape(file)}[/bold]", soft_wrap=True)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("group", *COLUMNS):
            table.add_column(name, justify="left" if name == "group" else "right", no_wrap=name != "group")
        for group in groups:
            if group.score is not None:
                table.add_row(escape(group.name), *cells(group.score))
        if table.row_count > 1:
            whole = score([row for row in found.rows if row.file == file])
            table.add_row("all", *cells(whole) if whole is not None else ())
        if table.row_count:
            console.print(table)
        if not output.quiet:
            for note in notes(groups):
                console.print(f"  {escape(note)}", style="dim")
        if output.verbose:
            show_rows(console, [row for row in found.rows if row.file == file])
        console.print()
    if not output.quiet:
        console.print(HOW, style="dim")


HOW = (
    "Errors are predicted over measured - 1, in percent: mean, 90th percentile and largest of their sizes; bias is "
    "their mean. rank: Spearman's correlation. regret: how much slower, in percent, the plan is that is predicted to "
    "be the fastest, over the choices among plans that the table has. beside: mean error of the simple rule (perfect "
    "scaling; the device's median ratio to the others)."
)


def cells(figures: Score) -> list[str]:
    """A group's figures as printed."""

    def percent(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{100 * value:{sign}.1f}"

    rank = "-" if figures.rank_correlation is None else f"{figures.rank_correlation:.3f}"
    return [
        str(figures.n), percent(figures.mean), percent(figures.p90), percent(figures.max), percent(figures.bias, "+"),
        rank, percent(figures.regret), percent(figures.beside),
    ]  # fmt: skip


def notes(groups: Sequence[Group]) -> list[str]:
    """What the figures leave out: rows that gave constants, and rows that could not be predicted, with the reasons."""
    said = []
    for group in groups:
        if group.num_marked:
            by = f": times {group.scale:.3f}" if group.scale is not None else ""
            said.append(f"{group.name}: {group.num_marked} rows gave constants and are not scored{by}.")
        said += [f"{group.name}: {count} not predicted: {why}." for why, count in group.reasons.items()]
    return said


def show_rows(console: Console, rows: Sequence[Outcome]) -> None:
    """Each row, with its error or the reason why there is none."""
    for row in rows:
        what = f"  row {row.row}: {row.group}: {row.label}".rstrip(": ")
        if row.error is None:
            console.print(f"{what}: not predicted: {row.reason}", soft_wrap=True, markup=False)
        else:
            used = f" ({row.use})" if row.use else ""
            console.print(
                f"{what}: measured {row.measured:.4g} {row.unit}, predicted {row.predicted:.4g}, "
                f"{100 * row.error:+.1f} %{used}",
                soft_wrap=True,
                markup=False,
            )


def together_by_file(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each table."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.file, []).append(group)
    return found
