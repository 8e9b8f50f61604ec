"""`trine verify --integer`: pieces of operators equal the whole bit for bit, on small integers."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from trine.plan.plan import Plan
from trine.report.fits import explained
from trine.report.write import write_file
from trine.run.integer import Integers, judge_integers
from trine.run.job import Job


def verify_integers(job: Job, plans: Sequence[Plan], console: Console, *, verbose: bool = False) -> list[Integers]:
    """Judge plans one by one, and say what was found."""
    result = []
    for plan in plans:
        start = time.monotonic()
        with explained(job, plan):
            found = judge_integers(job, plan)
        result.append(found)
        show(console, found, time.monotonic() - start, verbose)
    return result


def show(console: Console, found: Integers, seconds: float, verbose: bool) -> None:
    """One plan: how many operators were held against the whole, which differ, which round."""
    word = "DIFFERS" if found.different else "bit-equal"
    num = len(found.equal) + len(found.different)
    console.print(f"  {word}  {found.plan.describe()}  {num} operators, {seconds:.0f} s", soft_wrap=True)
    for name in found.different:
        console.print(f"         differs: {name}", soft_wrap=True)
    kinds = Counter(name.rpartition(": ")[2] for name in found.rounding)
    if kinds:
        said = ", ".join(
            f"{n} × {name.strip('_')}" for name, n in (kinds.most_common() if verbose else kinds.most_common(5))
        )
        more = "" if verbose or len(kinds) <= 5 else ", …"
        console.print(f"         not judged, for they may round: {said}{more}", soft_wrap=True)


def write_json(path: Path, found: Sequence[Integers]) -> None:
    """All of it, by plan."""
    rows = [
        {
            "plan": msgspec.to_builtins(one.plan),
            "equal": one.equal,
            "different": one.different,
            "rounding": one.rounding,
        }
        for one in found
    ]
    write_file(path, msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
