"""The cells of the sweep over models: a model at a size, in training or evaluation, under a cut; and the worker.

A list of models has one specification a line, with the options of the command line (``--set``, ``--size``, ``--seq``,
``--input``, ``--dtype``) and four of its own: ``--batch N``, ``--modes train,eval``, ``--cuts NAME,…`` and
``--gigabytes N``, what a worker needs.

    python -m bench.zoo_cells "torchvision:resnet18 --size 64|train|height 2"
"""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench.workers import serve

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.cli.values import input_shape, setting
from trine.errors import BadInput, CannotCut, CaptureFailed
from trine.graph.graph import Graph
from trine.plan.build import build, cut_sizes
from trine.program.compile import batches
from trine.run.job import Job, reference_steps
from trine.run.judge import Expected, judge

PRELOAD = (
    "torch._dynamo", "torch.export", "torchvision.models", "timm", "transformers.modeling_utils", "diffusers.models",
    "segmentation_models_pytorch",
)  # fmt: skip
BATCH = 4
MODES = ("train", "eval")
TILE, ANY = "tile", ("height", "sequence", "length", "heads", "channel")  # the first that a model has
CUTS: dict[str, dict[str, Any]] = {
    "batch 2": {"data": 2},
    "batch 2:1:1": {"data": 3, "shares": (2, 1, 1)},
    "height 2": {"tensor": (2,), "cuts": ("height",)},
    "height 3:2:1": {"tensor": (3,), "cuts": ("height",), "shares": (3, 2, 1)},
    "height x width": {"tensor": (2, 2), "cuts": ("height", "width")},
    "length 2": {"tensor": (2,), "cuts": ("length",)},
    "sequence 2": {"tensor": (2,), "cuts": ("sequence",)},
    "heads 2": {"tensor": (2,), "cuts": ("heads",)},
    "channel 2": {"tensor": (2,), "cuts": ("channel",)},
    "stages 3 x tile 2": {"stages": 3, "tensor": (2,), "cuts": (TILE,)},
}


@dataclass(frozen=True)
class Line:
    """One line of a list."""

    text: str
    spec: str
    wishes: Wishes
    modes: tuple[str, ...]
    cuts: tuple[str, ...]
    gigabytes: float

    @staticmethod
    def parse(text: str) -> "Line":
        """Raises SystemExit for an unknown option, BadInput for a bad value."""
        parser = argparse.ArgumentParser(prog="a line of models", add_help=False)
        parser.add_argument("spec")
        for name in ("set", "input"):
            parser.add_argument(f"--{name}", action="append", default=[])
        for name in ("size", "seq", "batch"):
            parser.add_argument(f"--{name}", type=int)
        parser.add_argument("--dtype")
        parser.add_argument("--gigabytes", type=float, default=4.0)
        parser.add_argument("--modes", default=",".join(MODES))
        parser.add_argument("--cuts", default=",".join(CUTS))
        found = parser.parse_args(shlex.split(text))
        wishes = Wishes(
            set=tuple(setting(each, "--set") for each in found.set), size=found.size, seq=found.seq, dtype=found.dtype,
            input=tuple(input_shape(each, "--input") for each in found.input), batch=found.batch or BATCH,
        )  # fmt: skip
        modes, cuts = tuple(found.modes.split(",")), tuple(found.cuts.split(","))
        if unknown := [*(set(modes) - set(MODES)), *(set(cuts) - set(CUTS))]:
            parser.error(f"{unknown[0]} is none of {', '.join((*MODES, *CUTS))}")
        return Line(" ".join(text.split()), found.spec, wishes, modes, cuts, found.gigabytes)


@dataclass(frozen=True)
class ZooCell:
    """One entry of the table."""

    line: Line
    mode: str
    cut: str
    apart = False

    @property
    def key(self) -> str:
        return f"{self.line.text}|{self.mode}|{self.cut}"

    @property
    def gigabytes(self) -> float:
        return self.line.gigabytes

    @property
    def group(self) -> tuple[str, str]:
        """What it shares a capture and a worker with."""
        return self.line.text, self.mode

    @staticmethod
    def parse(key: str) -> "ZooCell":
        text, mode, cut = key.split("|")
        return ZooCell(Line.parse(text), mode, cut)


def lines(path: Path) -> list[Line]:
    """The lines of a list; empty ones and what follows a # do not count."""
    texts = [text.partition("#")[0].strip() for text in path.read_text(encoding="utf-8").splitlines()]
    return [Line.parse(text) for text in texts if text]


def cells(of: Sequence[Line]) -> list[ZooCell]:
    """Every cell of a list."""
    return [ZooCell(line, mode, cut) for line in of for mode in line.modes for cut in line.cuts]


def wanted(cut: str, graph: Graph) -> dict[str, Any]:
    """The wishes of a cut, for this model."""
    found = dict(CUTS[cut])
    sizes = cut_sizes(graph)
    tile = next((name for name in ANY if sizes.get(name, 0) > 1), "height")
    return found | {"cuts": tuple(tile if name == TILE else name for name in found.get("cuts", ()))}


def judged(group: Sequence[ZooCell]) -> Iterator[dict[str, Any]]:
    """Records of the cells of one model and mode."""
    first = group[0]
    start_s = time.monotonic()
    yield {"begin": first.key}
    training = first.mode == "train"
    model = load_model(first.line.spec, first.line.wishes, first.line.wishes.batch)
    job = Job(model, training, float64=True)
    try:
        graph = job.graph()
    except CaptureFailed as error:
        for cell in group:
            yield {"key": cell.key, "equal": False, "result": "not captured", "worst": str(error)}
        return
    capture_s = time.monotonic() - start_s
    known: Expected | None = None
    for cell in group:
        start_s = time.monotonic()
        yield {"begin": cell.key}
        record: dict[str, Any] = {"key": cell.key, "capture_s": round(capture_s, 1)}
        try:
            plan = build(graph, batch=job.batch, **wanted(cell.cut, graph))
        except (BadInput, CannotCut) as error:
            yield record | {"equal": True, "result": "refused", "worst": str(error), "seconds": 0}
            continue
        if known is None:
            rows = batches(job.batch, 1)
            known = Expected(list(reference_steps(job, rows, job.step(plan).weights, 1)), (0.0,))
        verdict = judge(job, plan, "lockstep", 1, known)
        worst = verdict.worst()
        record |= {
            "equal": verdict.equal, "result": "exact" if verdict.equal else "DIFFERS",
            "worst": f"{worst.kind} at {worst.where}: {worst.value:.1e}, limit {worst.limit:.0e}",
            "shares": {share.cut: share.of_having for share in verdict.shares},
            "whole": [f"{share.cut}: {name} {n / max(share.having, 1):.1%}" for share in verdict.shares
                      for name, n in share.whole[:3] if n > 0.001 * share.having],
        }  # fmt: skip
        yield record | {"seconds": round(time.monotonic() - start_s, 1)}


def main(keys: list[str]) -> None:
    """Judge the cells whose keys are given."""
    torch.set_num_threads(1)
    serve([ZooCell.parse(key) for key in keys], judged, {"result": "failed"})


if __name__ == "__main__":
    main(sys.argv[1:])
