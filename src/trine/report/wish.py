"""From the options of the command line to a model, a job and plans."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trine.capture.model import Model
from trine.capture.specification import load_model
from trine.errors import BadInput
from trine.plan.build import build, check, cut_sizes, same_batch
from trine.plan.file import read_plan
from trine.plan.plan import Plan
from trine.run.job import Job

if TYPE_CHECKING:
    from trine.cli.options import ModelOptions, Options, PlanOptions


@dataclass(frozen=True)
class Wish:
    """What a person asked for: a model, and a plan where one is given by a file."""

    model: Model
    plan: Plan | None


def wish(options: "Options", default_batch: int, *, meta: bool = False) -> Wish:
    """The model of the command line, or of the plan file if MODEL is left out.  ``meta``: its weights need no data."""
    plan = read_plan(options.plan.file) if options.plan.file is not None else None
    batch = options.scenario.batch or (plan.batch if plan is not None and plan.batch > 0 else None)
    if options.model.spec is None and plan is not None:
        if ".py" in plan.model or plan.model.endswith(".pt2"):
            raise BadInput(
                f"{options.plan.file} is a plan for {plan.model[:80]!r}, which is code.", "A plan file runs no code.",
                "Name the MODEL too, if you trust it.",
            )  # fmt: skip
        kept = Kept.read(plan.model_options)
        return Wish(load_model(plan.model, kept, batch, default_batch=default_batch, meta=meta), plan)
    assert options.model.spec is not None, "the command line asks for a model or a plan"
    return Wish(load_model(options.model.spec, options.model, batch, default_batch=default_batch, meta=meta), plan)


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


def refuse_alone(options: "PlanOptions") -> None:
    """Raise BadInput for a wish that says nothing without another one."""
    axes = [degree for degree in options.tensor or () if degree > 1]
    cuts = [cut for cut in options.cut or () if cut != "batch"]
    streamed = (options.stages or 1) > 1 and (options.micro_batches or 1) > 1
    details = (
        ("--cut", cuts, "--tensor of 2 or more", axes),
        ("--cut batch", "batch" in (options.cut or ()), "--data", options.data),
        ("--schedule", options.schedule, "--stages and --micro-batches of 2 or more", streamed),
        ("--shares", options.shares, "--data or --tensor", options.data or axes),
        ("--halo", options.halo, "--tensor of 2 or more", axes),
        ("--zero", options.zero, "--data of 2 or more", (options.data or 1) > 1),
        ("--batch-norm", options.batch_norm, "--data, --stages or --tensor", is_by_hand(options)),
    )  # fmt: skip
    for flag, given, degree, value in details:
        if given and not value:
            raise BadInput(f"{flag} was given without {degree}.", "It is a detail of that.", f"Give {degree} too.")
    if len(cuts) > len(axes):
        raise BadInput(
            f"--cut {','.join(cuts)} names {len(cuts)} dimensions for the {len(axes)} axes of --tensor.",
            "Each axis cuts one dimension.", f"Name {len(axes)}, or give --tensor {'x'.join('2' for _ in cuts)}.",
        )  # fmt: skip


def enough(plan: Plan, engines: int | None) -> Plan:
    """The plan, if there are engines for it (None: as many as it has parts); else BadInput."""
    if engines is not None and plan.num_engines > engines:
        raise BadInput(
            f"The plan {plan.describe()} needs {plan.num_engines} engines, and there are {engines}.",
            "A plan needs an engine for each of its parts.", "Choose smaller degrees, or more engines.",
        )  # fmt: skip
    return plan


def is_by_hand(options: "PlanOptions") -> bool:
    """Whether degrees of a plan were given."""
    return any((options.data, options.stages, options.tensor, options.micro_batches))


def plan_by_hand(options: "PlanOptions", job: Job) -> Plan:
    """The plan that the degrees on the command line describe."""
    refuse_alone(options)
    micro_batches = options.micro_batches or 1
    return build(
        job.narrow_graph(micro_batches), data=options.data or 1, stages=options.stages or 1,
        tensor=options.tensor or (), cuts=options.cut or (), shares=options.shares or (), micro_batches=micro_batches,
        schedule=options.schedule or "1f1b", batch_norm=options.batch_norm or "synced",
        batch=job.batch, halo=options.halo or "exchange", zero=options.zero or 0,
    )  # fmt: skip


def plan_from_file(plan: Plan, job: Job, name: str) -> Plan:
    """A plan that was read, held against the model that it is used for."""
    same_batch(plan, job.batch, name)
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
        m = 1 if job.model.fixed else min(4, batch)
        plans.append(build(job.graph_for(m), stages=engines, micro_batches=m, batch=job.batch))
    else:
        plans.append(build(job.graph(), stages=engines, batch=job.batch))
    return plans


def header(model: Model, options: "ModelOptions") -> str:
    """One line on what is run: the model, its shapes, its weights."""
    shapes = [f"{name} {'×'.join(map(str, t.shape))}" for name, t in model.inputs.groups(False) if hasattr(t, "shape")]
    sets = " ".join(f"--set {s.key}={shlex.quote(s.value)}" for s in options.set)
    weights = f"made by {model.name}" if ".py:" in model.name and options.load is None else model.weights
    return f"{model.name} {sets}".strip() + f" · {', '.join(shapes)} · weights {weights}"
