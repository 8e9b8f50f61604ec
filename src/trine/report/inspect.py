"""`trine inspect`: what a model is made of, what can be cut, and where it must wait for itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from torch import nn

from trine.capture.export import capture
from trine.capture.model import Loss, Model, make_model
from trine.capture.specification import load_model
from trine.errors import CaptureFailed
from trine.graph.graph import Graph
from trine.report.anatomy import FOUND, Anatomy, CutShare, How, Layer, Point
from trine.report.wish import header
from trine.report.write import write_file
from trine.units import BYTES, COUNT, FLOPS

if TYPE_CHECKING:
    from trine.cli.options import Options

PLAIN_WIDTH = 140  # of what goes to a file or a pipe
DROPPED = ("operators", "output", "activations", "parameters")  # columns that a narrow terminal goes without, in order


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The answer.  ``failure``: why there is no graph; only data parallelism is possible then.

    flops: of a forward pass; activation_bytes: of all results of operators that are no views, forward.
    """

    model: str
    training: bool
    batch: int
    num_parameters: int
    parameter_bytes: int
    failure: str = ""
    flops: float = 0.0
    activation_bytes: int = 0
    layers: tuple[Layer, ...] = ()
    operators: tuple[Layer, ...] = ()
    points: tuple[Point, ...] = ()
    cuts: tuple[CutShare, ...] = ()


def inspect(
    module: nn.Module | Model, *, inputs: Any = None, targets: Any = None, loss: Loss | None = None,
    batch_dims: dict[str, int | None] | None = None, training: bool | None = None,
) -> Inspection:  # fmt: skip
    """Take a model apart.  ``training``: with its loss, in training mode; by default if there is a loss."""
    model = module if isinstance(module, Model) else make_model(module, inputs, targets, loss, batch_dims=batch_dims)
    if training is None:
        training = isinstance(module, Model) or loss is not None or targets is not None
    own = list(model.module.parameters())
    common: dict[str, Any] = {
        "model": model.name, "training": training, "batch": model.inputs.batch,
        "num_parameters": sum(p.numel() for p in own),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in own),
    }  # fmt: skip
    try:
        graph = capture(model, training=training, with_loss=training).graph
    except CaptureFailed as error:
        return Inspection(**common, failure=str(error))
    return Inspection(**common, **_parts(graph))


def _parts(graph: Graph) -> dict[str, Any]:
    anatomy = Anatomy(graph)
    operators = anatomy.operators()
    return {
        "flops": sum(row.flops for row in operators),
        "activation_bytes": sum(row.activation_bytes for row in operators),
        "layers": anatomy.layers(), "operators": operators, "points": anatomy.points(), "cuts": anatomy.cuts(),
    }  # fmt: skip


def run(options: "Options") -> int:
    """The verb."""
    assert options.model.spec is not None
    scenarios = options.scenario.scenario or ("training",)
    model = load_model(options.model.spec, options.model, options.scenario.batch, meta=options.model.load is None)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    console.print(header(model, options.model), soft_wrap=True)
    found = [inspect(model, training=mode) for mode in sorted({name == "training" for name in scenarios}, reverse=True)]
    if options.output.json is not None:
        write_json(found, options.output.json)
    for one in found:
        show(one, console, verbose=options.output.verbose, quiet=options.output.quiet)
    return 0


def write_json(found: Sequence[Inspection], path: Path) -> None:
    """All of it as JSON, one value for each mode."""
    write_file(path, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def show(found: Inspection, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
    """Print it; ``verbose`` shows operators for modules and every sequential point, ``quiet`` no table of layers."""
    mode = "training" if found.training else "evaluation"
    amount = f"{COUNT.format(found.num_parameters)} parameters ({BYTES.format(found.parameter_bytes)})"
    if found.failure:
        console.print(f"{mode}, batch {found.batch}: {amount}", soft_wrap=True)
        console.print(f"Data parallelism only. {found.failure}", soft_wrap=True)
        return
    console.print(
        f"{mode}, batch {found.batch}: {amount}"
        f" · forward {FLOPS.format(found.flops)}, {FLOPS.format(found.flops / found.batch)} a sample"
        f" · activations {BYTES.format(found.activation_bytes)} · {len(found.operators)} operators",
        soft_wrap=True,
    )
    if not quiet:
        console.print()
        console.print(layer_table(found.operators if verbose else found.layers, console))
    console.print()
    console.print(cut_table(found.cuts))
    if verbose:
        for cut in found.cuts:
            if cut.whole:
                names = ", ".join(name for name, _ in cut.whole)
                console.print(f"  {cut.cut}: whole ran {names}", soft_wrap=True)
    show_points(found, console, verbose)


def layer_table(rows: Sequence[Layer], console: Console) -> Table:
    """Modules or operators; a narrow console gets fewer columns."""
    cells: dict[str, list[str]] = {
        "layer": [row.name for row in rows],
        "operators": [_short(row.operators) for row in rows],
        "output": ["×".join(map(str, row.shape)) or "scalar" for row in rows],
        "parameters": [COUNT.format(row.num_parameters) if row.num_parameters else "" for row in rows],
        "FLOPs": [FLOPS.format(row.flops) if row.flops else "" for row in rows],
        "activations": [BYTES.format(row.activation_bytes) if row.activation_bytes else "" for row in rows],
        "can be cut by": [", ".join((*row.cuts, *(f"({cut})" for cut in row.partly))) for row in rows],
        "whole by": [_reasons(row.whole) for row in rows],
    }
    if not any(cells["whole by"]):
        del cells["whole by"]
    dropped = list(DROPPED)
    while dropped and sum(max(map(len, (name, *column))) + 2 for name, column in cells.items()) > console.width:
        del cells[dropped.pop(0)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in cells:
        right = name in ("parameters", "FLOPs", "activations")
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


def _reasons(whole: Sequence[tuple[str, str]]) -> str:
    """Cuts that leave an operator whole, those with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for cut, why in whole:
        by_reason.setdefault(why, []).append(cut)
    return "; ".join(f"{', '.join(cuts)}: {why}" for why, cuts in by_reason.items())


def _short(operators: Sequence[str], most: int = 3) -> str:
    more = f" +{len(operators) - most}" if len(operators) > most else ""
    return ", ".join(operators[:most]) + more


def cut_table(cuts: Sequence[CutShare]) -> Table:
    """What can be cut, and how much of the work that tiles."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("can be cut", "size", "FLOPs tiled", "of those that have it"):
        table.add_column(name, justify="right" if name != "can be cut" else "left")
    for cut in cuts:
        table.add_row(cut.cut, str(cut.size), f"{cut.of_all:.1%}", f"{cut.of_having:.1%}")
    return table


def show_points(found: Inspection, console: Console, verbose: bool) -> None:
    """Sequential points by kind, with ``verbose`` each."""
    groups: dict[tuple[How, str, tuple[str, ...]], list[Point]] = {}
    for point in found.points:
        groups.setdefault((point.how, point.operator, point.along), []).append(point)
    console.print(f"\nSequential points (they need all of a dimension): {len(found.points) or 'none'}")
    for how, text in FOUND.items():
        mine = {key: points for key, points in groups.items() if key[0] == how}
        if not mine:
            continue
        console.print(f"  {text}:")
        for (_, operator, along), points in mine.items():
            console.print(f"    {len(points)} × {operator} over {', '.join(along)}", soft_wrap=True)
            if verbose:
                console.print(f"      {', '.join(point.layer for point in points)}", soft_wrap=True)
