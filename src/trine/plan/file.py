"""A plan as a JSON file that a person can read, edit and get a precise error from.  It never executes code."""

import json
from pathlib import Path
from typing import Protocol

import msgspec

from trine.errors import BadInput
from trine.plan.plan import Plan

LARGEST_BYTES = 16 * 1024**2


class Answer(Protocol):
    """What has a best plan: the answer of ``trine.plan``."""

    @property
    def best(self) -> Plan:
        """The plan."""


def given_plan(plan: Plan | Answer | Path | str) -> Plan:
    """A plan as a user gives it: itself, the best of an answer, or from a file.  BadInput for anything else."""
    best = getattr(plan, "best", plan)
    if isinstance(best, Plan):
        return best
    if isinstance(plan, (str, Path)):
        return read_plan(Path(plan))
    raise BadInput(
        f"A {type(plan).__name__} was given as a plan.", "A plan is what trine.plan(…) answers, or the path of a file.",
        "For example: trine.plan(module, inputs=…, engines=2).",
    )  # fmt: skip


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan, one value a line."""
    try:
        path.write_text(json.dumps(msgspec.to_builtins(plan), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"The plan could not be written to {path}: {error.strerror}.", "", "Give a path that can be written."
        ) from error


def read_plan(path: Path) -> Plan:
    """Read a plan; BadInput says where in the file what is wrong."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(
                f"{path} has {path.stat().st_size} bytes.", "A plan has at most 16 MiB.", "Give a plan file."
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"The plan {path} could not be read: {error}.", "A plan is a text file.", "Give the path of one."
        ) from error
    try:
        return msgspec.json.decode(text, type=Plan)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{path} is not a plan: {error}.", f"The keys of a plan: {', '.join(Plan.__struct_fields__)}.",
            "`trine plan MODEL --save-plan FILE` writes one.",
        ) from error  # fmt: skip
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(
            f"{path} is not JSON: {error}.", "A plan is a JSON file.", "`trine plan MODEL --save-plan FILE` writes one."
        ) from error
