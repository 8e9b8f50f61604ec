"""The options that the verbs share: each is declared once, here, as a field of a frozen dataclass.

A verb names the fields that it takes; the command line of that verb is made from them (`verb.py`), and what the verb
gets is an `Options`.  A field that was not given, or that the verb does not take, is None, empty or False: "not said",
for the work behind the verb to decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trine.cli import values
from trine.cli.values import InputShape, Setting
from trine.cluster.what_if import Change
from trine.errors import BadInput
from trine.plan.plan import CUTS, BatchNorm, Halo, Schedule
from trine.units import TIME

Parser = Callable[[str, str], Any]


@dataclass(frozen=True)
class Declaration:
    """How one field looks on the command line."""

    flags: tuple[str, ...]
    """Its spellings, the first one used in messages; empty for the positional MODEL."""
    help: str
    metavar: str = ""
    """Empty for a flag that takes no value."""
    parse: Parser | None = None
    repeated: bool = False


def _option(flags: str, metavar: str, help: str, parse: Parser | None, repeated: bool = False) -> Any:
    declaration = Declaration(tuple(flags.split()), help, metavar, parse, repeated)
    return field(default=() if repeated else None, metadata={"declaration": declaration})


def _flag(flags: str, help: str) -> Any:
    return field(default=False, metadata={"declaration": Declaration(tuple(flags.split()), help)})


@dataclass(frozen=True)
class ModelOptions:
    """The model: what it is and the shapes that it is captured for."""

    spec: str | None = _option(
        "",
        "MODEL",
        "torchvision:NAME, timm:NAME, hf:MODEL_TYPE (or a local folder or config.json), diffusers:CLASS, "
        "smp:ARCHITECTURE/ENCODER, file.py:callable or model.pt2. "
        "A .py and a .pt2 file are code, which runs here: name only files you trust.",
        values.word,
    )
    set: tuple[Setting, ...] = _option(
        "--set", "KEY=VALUE", "An argument of the model's constructor or an entry of its config.", values.setting, True
    )
    load: Path | None = _option(
        "--load", "FILE", "Its weights; else random, or those of the file.", values.file_to_read
    )
    size: int | None = _option("--size", "PIXELS", "Height and width of the input images.", values.whole(1))
    seq: int | None = _option("--seq", "LENGTH", "Length of the input sequences.", values.whole(1))
    input: tuple[InputShape, ...] = _option(
        "--input", "SHAPE[:DTYPE]", "One input without the batch: 3x224x224, or 128:int64.", values.input_shape, True
    )
    dtype: str | None = _option(
        "--dtype",
        "TYPE",
        f"The type of the weights: {', '.join(values.TYPES)}.",
        values.choice(*values.TYPES, fp32="float32", fp64="float64", bf16="bfloat16", fp16="float16"),
    )
    seed: int | None = _option("--seed", "N", "Of weights, inputs and dropout; 0 if not given.", values.whole(0))


@dataclass(frozen=True)
class EngineOptions:
    """The engines: cores or devices here, or a cluster that one need not own."""

    engines: int | None = _option("--engines", "N", "So many engines of this machine.", values.whole(1))
    cluster: str | None = _option(
        "--cluster", "FILE|PRESET", "A cluster's TOML file, or a preset times a count: a100-80gbx1024.", values.word
    )
    calibrate: bool = _flag("--calibrate", "Measure engines and links; the result is kept.")
    fresh: bool = _flag("--fresh", "Measure again what was kept.")


@dataclass(frozen=True)
class PlanOptions:
    """The plan: what is fixed by hand; the rest is chosen."""

    data: int | None = _option("--data --dp", "N", "Parts of the batch: replicas of the model.", values.whole(1))
    stages: int | None = _option("--stages --pp", "N", "Stages of a pipeline of layers.", values.whole(1))
    tensor: tuple[int, ...] | None = _option("--tensor --tp", "N|NxM", "Tiles of each tensor.", values.degrees)
    cut: tuple[str, ...] = _option(
        "--cut",
        "DIMS",
        f"What --tensor cuts, one for each axis: {', '.join(cut for cut in CUTS if cut != 'batch')}.",
        values.several(values.choice(*CUTS)),
    )
    shares: tuple[float, ...] | None = _option("--shares", "A:B", "Unequal parts: 3:1.", values.shares)
    micro_batches: int | None = _option("--micro-batches", "M", "Parts that a batch is streamed in.", values.whole(1))
    schedule: Schedule | None = _option(
        "--schedule", "NAME", "Of micro-batches over stages: gpipe or 1f1b.", values.choice("gpipe", "1f1b")
    )
    batch_norm: BatchNorm | None = _option(
        "--batch-norm", "HOW", "synced (equal to one engine) or local (not equal).", values.choice("synced", "local")
    )
    halo: Halo | None = _option(
        "--halo", "HOW", "Edges of tiles: exchange, overlap (exchange them while engines compute) or recompute.",
        values.choice("exchange", "overlap", "recompute"),
    )  # fmt: skip
    zero: int | None = _option(
        "--zero", "0|1", "1: weights and optimizer states rest cut over --data, and are gathered for a step.",
        values.whole(0, 1),
    )  # fmt: skip
    file: Path | None = _option("--plan", "FILE", "A saved plan; MODEL may then be left out.", values.file_to_read)


@dataclass(frozen=True)
class ScenarioOptions:
    """The scenario: what the engines are for."""

    scenario: tuple[str, ...] = _option(
        "--scenario",
        "NAME",
        "training, cloud (cloud-inference), device (on-device); several with commas but for plan and simulate.",
        values.several(values.choice("training", "cloud", "device", cloud_inference="cloud", on_device="device")),
    )
    batch: int | None = _option("--batch", "N", "The global batch.", values.whole(1))


@dataclass(frozen=True)
class HowOptions:
    """How it is run and for how long."""

    on: tuple[str, ...] = _option(
        "--on",
        "RUNTIME",
        "lockstep, threads or processes; for verify several with commas.",
        values.several(values.choice("lockstep", "threads", "processes")),
    )
    budget_s: float | None = _option(
        "--budget", "TIME", "Stop measuring (plan: searching) after: 3m.", values.quantity(TIME)
    )
    no_measure: bool = _flag(
        "--no-measure", "Run no plan: predict only, after this machine was calibrated and single operators were timed."
    )
    integer: bool = _flag(
        "--integer", "Hold the pieces of every operator that is exact on small integers against the whole, bit for bit."
    )


@dataclass(frozen=True)
class SearchOptions:
    """What the search for a plan looks at beside."""

    what_if: tuple[Change, ...] = _option(
        "--what-if", "KEY=FACTOR", "The best plan if the cluster's link, compute, bandwidth or memory were so many "
        "times as fast or large: link=2x.", values.change, True,
    )  # fmt: skip


@dataclass(frozen=True)
class OutputOptions:
    """What is written."""

    json: Path | None = _option("--json", "FILE", "Everything as JSON.", values.file_to_write)
    save_plan: Path | None = _option("--save-plan", "FILE", "Write the plan.", values.file_to_write)
    trace: Path | None = _option("--trace", "FILE", "When each engine does what, for Perfetto.", values.file_to_write)
    quiet: bool = _flag("--quiet -q", "The answer only.")
    verbose: bool = _flag("--verbose -v", "Say more.")


@dataclass(frozen=True)
class TableOptions:
    """Measurements to predict."""

    files: tuple[Path, ...] = _option(
        "", "TABLE.csv", "Measurements, one a row; docs/validate.md lists the columns.", values.file_to_read, True
    )


@dataclass(frozen=True)
class Options:
    """All that was said on the command line."""

    model: ModelOptions = ModelOptions()
    engines: EngineOptions = EngineOptions()
    plan: PlanOptions = PlanOptions()
    scenario: ScenarioOptions = ScenarioOptions()
    how: HowOptions = HowOptions()
    search: SearchOptions = SearchOptions()
    output: OutputOptions = OutputOptions()
    tables: TableOptions = TableOptions()
    cache: Path | None = None
    """Where what was measured of this machine is kept: of the environment, not of the command line."""


GROUPS: Mapping[str, type] = {group.name: type(group.default) for group in fields(Options) if group.name != "cache"}
LATER = {
    "--recompute": "activations are not recomputed yet",
    "--rate": "engines are always kept busy",
    "--p99": "engines are always kept busy",
    "--html": "nothing writes a page yet (--json FILE writes everything)",
}
"""Options of the grammar that this version refuses, with the reason; no help shows them."""


def declarations() -> dict[str, Declaration]:
    """Return every declaration by its dotted field name, "plan.micro_batches", in the order of `--help`."""
    return {
        f"{group}.{option.name}": option.metadata["declaration"]
        for group, options in GROUPS.items()
        for option in fields(options)
    }


def build(said: Mapping[str, Any]) -> Options:
    """Return the options for the raw words `said`, by dotted field name; raise BadInput for one that is wrong."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for name, declaration in declarations().items():
        if said.get(name) not in (None, False, []):
            group, _, option = name.partition(".")
            groups[group][option] = _parsed(declaration, said[name])
    options = Options(**{group: GROUPS[group](**chosen) for group, chosen in groups.items()})
    check(options)
    return options


def check(options: Options) -> None:
    """Raise BadInput where two options contradict each other."""
    values.at_most_one(_given(options.engines, "engines", "cluster"))
    values.at_most_one(_given(options.output, "quiet", "verbose"))
    by_hand = _given(options.plan, *({option.name for option in fields(PlanOptions)} - {"file"}))
    if options.plan.file and by_hand:
        raise BadInput(
            f"--plan {options.plan.file} was given together with {', '.join(by_hand)}.",
            "A plan file says the whole plan.",
            "Leave out the one or the other.",
        )


def _parsed(declaration: Declaration, said: Any) -> Any:
    option = declaration.flags[0] if declaration.flags else declaration.metavar
    if declaration.parse is None:
        return said
    if declaration.repeated:
        return tuple(declaration.parse(word, option) for word in said)
    return declaration.parse(said, option)


def _given(group: Any, *names: str) -> list[str]:
    """Return the flags of those fields of `group` that were given."""
    return [
        option.metadata["declaration"].flags[0]
        for option in fields(group)
        if option.name in names and getattr(group, option.name) != option.default
    ]
