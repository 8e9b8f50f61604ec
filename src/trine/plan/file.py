"""A plan as a JSON file that a person can read, edit and get a precise error from.  It never executes code."""

import json
from pathlib import Path

import msgspec

from trine.errors import BadInput
from trine.plan.plan import Plan

LARGEST_BYTES = 16 * 1024**2


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan, one value a line."""
    try:
        path.write_text(json.dumps(msgspec.to_builtins(plan), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"The plan could not be written to {path}: {error.strerror}.") from error


def read_plan(path: Path) -> Plan:
    """Read a plan; BadInput says where in the file what is wrong."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(
                f"{path} has {path.stat().st_size} bytes.", "A plan has at most 16 MiB.", "Give a plan file."
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"The plan {path} could not be read: {error}.") from error
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
