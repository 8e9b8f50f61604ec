"""From the options of the command line to a model, a job and plans."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trine.capture.model import Model, resize
from trine.capture.specification import load_model
from trine.errors import BadInput, PlanMismatch
from trine.plan.build import build, check, cut_sizes
from trine.plan.file import read_plan
from trine.plan.plan import Plan
from trine.run.job import Job

if TYPE_CHECKING:
    from trine.cli.options import ModelOptions, Options, PlanOptions

LATER = {
    "zero": "weights are not kept cut over the data axis yet",
    "recompute": "activations are not recomputed yet",
}


@dataclass(frozen=True)
class Wish:
    """What a person asked for: a model, and a plan where one is given by a file."""

    model: Model
    plan: Plan | None


def wish(options: "Options", default_batch: int) -> Wish:
    """The model of the command line, or of the plan file if MODEL is left out."""
    plan = read_plan(options.plan.file) if options.plan.file is not None else None
    batch = options.scenario.batch or (plan.batch if plan is not None else None) or default_batch
    if options.model.spec is None and plan is not None:
        if ".py" in plan.model or plan.model.endswith(".pt2"):
            raise BadInput(
                f"{options.plan.file} is a plan for {plan.model[:80]!r}, which is code.", "A plan file runs no code.",
                "Name the MODEL too, if you trust it.",
            )  # fmt: skip
        return Wish(load_model(plan.model, Kept.read(plan.model_options), batch), plan)
    assert options.model.spec is not None, "the command line asks for a model or a plan"
    return Wish(load_model(options.model.spec, options.model, batch), plan)


@dataclass(frozen=True)
class KeptSetting:
    """One ``--set`` that a plan was made with."""

    key: str
    value: str


@dataclass(frozen=True)
class Kept:
    """The model's options that a plan was made with, so that its file alone names the model."""

    set: tuple[KeptSetting, ...] = ()
    size: int | None = None
    seq: int | None = None
    dtype: str | None = None
    seed: int | None = None
    load: Path | None = None
    input: tuple[Any, ...] = ()

    @staticmethod
    def write(options: "ModelOptions") -> dict[str, str]:
        """Options as the text of a plan; weights and ``--input`` are not kept: such a model is named again."""
        result = {f"set {s.key}": s.value for s in options.set}
        for name in ("size", "seq", "dtype", "seed"):
            if getattr(options, name) is not None:
                result[name] = str(getattr(options, name))
        return result

    @staticmethod
    def read(text: dict[str, str]) -> "Kept":
        """The inverse; BadInput for a key that nobody writes."""
        values: dict[str, Any] = {}
        sets = []
        for key, value in text.items():
            if key.startswith("set "):
                sets.append(KeptSetting(key[4:], value))
            elif key in ("size", "seq", "seed") and value.isdigit():
                values[key] = int(value)
            elif key == "dtype":
                values[key] = value
            else:
                raise BadInput(
                    f"The plan has the model option {key!r} = {value!r}.",
                    "Possible: size, seq, seed (whole numbers), dtype, and set KEY.", "Correct the plan file.",
                )  # fmt: skip
        return Kept(tuple(sets), **values)


def refuse_later(options: "PlanOptions") -> None:
    """Raise BadInput for a wish that this version cannot honour, or that says nothing without another one."""
    for name, why in LATER.items():
        if getattr(options, name):
            raise BadInput(f"--{name} was given, but {why}.", "", f"Leave --{name} out.")
    if options.halo == "recompute":
        raise BadInput("--halo recompute was given.", "Only exchange is possible yet.", "Leave --halo out.")
    if options.schedule not in (None, "gpipe", "1f1b"):
        raise BadInput(f"--schedule {options.schedule} was given.", "Possible: gpipe, 1f1b.", "Choose one of these.")
    cuts = tuple(cut for cut in options.cut or () if cut != "batch")
    by_degree = {
        "--cut": (cuts, "--tensor", options.tensor), "--schedule": (options.schedule, "--stages", options.stages),
        "--shares": (options.shares, "--data or --tensor", options.data or options.tensor),
        "--batch-norm": (options.batch_norm, "--data, --stages or --tensor", is_by_hand(options)),
    }  # fmt: skip
    for flag, (given, degree, value) in by_degree.items():
        if given and not value:
            raise BadInput(f"{flag} was given without {degree}.", "It is a detail of that.", f"Give {degree} too.")


def refuse_output(verb: str, options: "Options", *names: str) -> None:
    """Raise BadInput for a file that was asked for and that this verb does not write."""
    flags = {"html": options.output.html, "trace": options.output.trace, "save-plan": options.plan.save}
    instead = {
        "html": "--json FILE writes everything.", "trace": "`trine simulate MODEL --trace FILE` writes one.",
        "save-plan": "`trine plan MODEL --save-plan FILE` writes one.",
    }  # fmt: skip
    for name in names:
        if flags[name] is not None:
            raise BadInput(f"--{name} was given, but {verb} does not write that yet.", instead[name], "Leave it out.")


def enough(plan: Plan, engines: int, flag: str = "--engines") -> Plan:
    """The plan, if there are engines for it; else BadInput."""
    if plan.num_engines > engines:
        raise BadInput(
            f"The plan {plan.describe()} needs {plan.num_engines} engines, and there are {engines}.",
            "A plan needs an engine for each of its parts.", f"Choose smaller degrees, or {flag} {plan.num_engines}.",
        )  # fmt: skip
    return plan


def is_by_hand(options: "PlanOptions") -> bool:
    """Whether degrees of a plan were given."""
    return any((options.data, options.stages, options.tensor, options.micro_batches))


def plan_by_hand(options: "PlanOptions", job: Job) -> Plan:
    """The plan that the degrees on the command line describe."""
    refuse_later(options)
    micro_batches = options.micro_batches or 1
    return build(
        job.narrow_graph(micro_batches), data=options.data or 1, stages=options.stages or 1,
        tensor=options.tensor or (), cuts=options.cut or (), shares=options.shares or (), micro_batches=micro_batches,
        schedule="gpipe" if options.schedule == "gpipe" else "1f1b", batch_norm=options.batch_norm or "synced",
        batch=job.batch,
    )  # fmt: skip


def plan_from_file(plan: Plan, job: Job, name: str) -> Plan:
    """A plan that was read, held against the model that it is used for."""
    if plan.batch and plan.batch != job.batch:
        raise PlanMismatch(plan=name, changed=[f"the batch was {plan.batch}, is {job.batch}"])
    check(plan, job.narrow_graph(plan.micro_batches), job.batch)
    return plan


def usual_plans(job: Job, engines: int = 2) -> list[Plan]:
    """Plans that show each kind of parallelism on a few engines, as far as the model allows."""
    sizes = cut_sizes(job.graph())
    batch = sizes.get("batch", 1)
    plans = []
    if batch >= engines:
        plans.append(build(job.graph(), data=engines, batch=job.batch))
    for cut in ("height", "sequence", "heads", "channel"):
        if sizes.get(cut, 0) >= engines and not (cut == "channel" and "heads" in sizes):
            plans.append(build(job.graph(), tensor=(engines,), cuts=(cut,), batch=job.batch))
    if job.training:
        m = min(4, batch)
        plans.append(build(job.graph_for(m), stages=engines, micro_batches=m, batch=job.batch))
    else:
        plans.append(build(job.graph(), stages=engines, batch=job.batch))
    return plans


def resized(model: Model, batch: int) -> Model:
    """The model with example inputs of another batch size."""
    if model.inputs.batch == batch:
        return model
    return Model(model.name, model.module, resize(model, batch), model.loss, model.optimizer, model.seed, model.weights)


def header(model: Model, options: "ModelOptions") -> str:
    """One line on what is run: the model, its shapes, its weights."""
    shapes = [f"{name} {'×'.join(map(str, t.shape))}" for name, t in model.inputs.groups(False) if hasattr(t, "shape")]
    sets = " ".join(f"--set {s.key}={shlex.quote(s.value)}" for s in options.set)
    return f"{model.name} {sets}".strip() + f" · {', '.join(shapes)} · weights {model.weights}"
