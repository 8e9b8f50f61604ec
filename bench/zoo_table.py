"""The table of the sweep over models, as Markdown, and what was lost since the last one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.workers import Record
from bench.zoo_cells import CUTS, ZooCell

HEAD = """# Models under every cut

One step of each model in float64 by lockstep, held against the plain module on one engine: outputs, loss, buffers and
each gradient by name, to 1e-9. Batch {batch}; `train` has the loss, gradients and synchronised batch norm.

    make sweep          # python -m bench.zoo_sweep --table docs/sweep.md

A cell is exact where it has a number: the share of the FLOPs of operators with the cut dimension that ran tiled, the
smallest over the plan's axes. A dash: the model has no such dimension, or too few indices of it, and the plan was
refused with a sentence that says what is possible. Seconds are of a cell in the middle, the capture aside.

"""


def rows(every: Sequence[ZooCell], records: Mapping[str, Record]) -> dict[tuple[str, str], dict[str, str]]:
    """(line, mode) → cut → what its cell says."""
    result: dict[tuple[str, str], dict[str, str]] = {}
    for cell in every:
        if cell.key in records:
            result.setdefault((cell.line.text, cell.mode), {})[cell.cut] = word(cell.cut, records[cell.key])
    return result


def word(cut: str, record: Record) -> str:
    """One cell: a share, ``exact``, a dash, or what is wrong."""
    if record.get("result") == "refused":
        return "–"
    if not record["equal"]:
        return str(record.get("result", "failed"))
    if cut.startswith("batch"):
        return "exact"
    return f"{min(record['shares'].values(), default=1.0):.1%}"


def losses(table: Path, every: Sequence[ZooCell], records: Mapping[str, Record]) -> list[str]:
    """Cells of the last table that were better than they are now."""
    old: dict[tuple[str, str], dict[str, str]] = {}
    for line in table.read_text(encoding="utf-8").splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == len(CUTS) + 3 and parts[1] in ("train", "eval"):
            old[parts[0].strip("`"), parts[1]] = dict(zip(CUTS, parts[2:], strict=False))
    lost = []
    for place, now in rows(every, records).items():
        for cut, text in now.items():
            before = old.get(place, {}).get(cut, "")
            if value(text) < value(before) - 0.001:
                lost.append(f"{place[0]} {place[1]} {cut}: was {before}, is {text}")
    return lost


def value(text: str) -> float:
    """How good a cell is: its share, 1 where it is exact, 0 where it is not, −1 where there was none."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    return {"exact": 1.0, "": -1.0, "–": -1.0}.get(text, 0.0)


def write_table(path: Path, every: Sequence[ZooCell], records: Mapping[str, Record]) -> None:
    """Write what complete cells say."""
    found = rows(every, records)
    mine = [records[cell.key] for cell in every]
    exact, refused = (sum(r.get("result") == name for r in mine) for name in ("exact", "refused"))
    dates, commits = {r["date"] for r in mine}, {r["commit"] for r in mine}
    batches = sorted({cell.line.wishes.batch for cell in every})
    lines = [HEAD.format(batch=" or ".join(map(str, batches)))]
    lines.append(
        f"{max(dates)}, commit {', '.join(sorted(commits))}: of {len(mine)} cells {exact} are exact, "
        f"{refused} refused, {len(mine) - exact - refused} wrong.\n"
    )
    lines += ["| model | mode | " + " | ".join(CUTS) + " | seconds |", "|---|---|" + "---|" * (len(CUTS) + 1)]
    for (line, mode), cuts in found.items():
        took = sorted(records[f"{line}|{mode}|{cut}"].get("seconds", 0.0) for cut in cuts)
        words = " | ".join(cuts.get(cut, "") for cut in CUTS)
        lines.append(f"| `{line}` | {mode} | {words} | {took[len(took) // 2]:.0f} |")
    lines += ["\n## Heaviest operators that have the dimension and ran whole\n", *whole(every, records)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def whole(every: Sequence[ZooCell], records: Mapping[str, Record]) -> list[str]:
    """One line a model and cut in training, where more than a thousandth ran whole."""
    result = []
    for cell in every:
        names = records[cell.key].get("whole", [])
        if names and (cell.mode == "train" or "train" not in cell.line.modes):
            result.append(f"- `{cell.line.text}` {cell.cut}: {'; '.join(names)}")
    return result
