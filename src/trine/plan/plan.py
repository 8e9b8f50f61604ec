"""Plan: how one model is spread over engines.  A value that a person can read, edit and check.

Engines are numbered like the digits of a number: the axes in their order, the last one counting fastest, and the stages
before them all unless ``stages_at`` says where.  Neighbours in this order should be neighbours in the cluster.
"""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Literal

import msgspec

Schedule = Literal["gpipe", "1f1b"]
BatchNorm = Literal["synced", "local"]
Attention = Literal["gather", "ring"]
Halo = Literal["exchange", "overlap", "recompute"]
SPACE = ("height", "width", "depth", "length", "sequence")  # operators may read beyond their tile
FOLLOWED = ("batch", *SPACE)  # the cut starts at the inputs and is followed
FEATURES = ("channel", "heads")  # the cut starts at weights
CUTS = FOLLOWED + FEATURES


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mesh axis: its name, how many coordinates it has, what it cuts, and in which shares (empty: equal ones)."""

    name: str
    size: int
    cut: str
    shares: tuple[float, ...] = ()

    @property
    def weights(self) -> tuple[float, ...]:
        """The shares, equal ones written out."""
        return self.shares or (1.0,) * self.size


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Axes × stages × micro-batches.

    model, model_options, fingerprint, input_shapes: what the plan was made for, at the size of its largest micro-batch.
    batch: rows of the whole batch; 0 where it is not said.
    stage_starts: names of the operators at which stages 1, 2, … begin, in the graph's order.
    micro_batches: in how many pieces the batch streams through the stages.
    batch_norm: ``synced`` over every axis that cuts its batch (equal to one engine) or ``local`` to each coordinate of
        the batch axis, as torch's DistributedDataParallel does.
    attention: where query rows are cut, every engine gets all keys and values (``gather``), or they go round in blocks
        (``ring``), which needs less memory in inference.
    recomputed_halos: runs of operators (the first, the last) in which each engine computes the halos of its tiles
        itself instead of getting them from its neighbours; elsewhere they are exchanged.
    border_first: what neighbours will read is computed and sent before the rest of a tile, so that halos are under way
        while engines compute; borders are computed twice.
    zero: 1 where weights, and with them the optimizer's states, rest cut over the batch axis: they are gathered for a
        step, and gradients are summed into the parts (ZeRO stage 1, Rajbhandari et al., 2020); 0: every engine has all.
    stages_at: how many of the axes count slower than the stages; 0: engines are numbered stage by stage.
    """

    model: str = ""
    model_options: dict[str, str] = {}
    fingerprint: str = ""
    input_shapes: dict[str, tuple[int, ...]] = {}
    batch: int = 0
    axes: tuple[Axis, ...] = ()
    stage_starts: tuple[str, ...] = ()
    micro_batches: int = 1
    schedule: Schedule = "1f1b"
    batch_norm: BatchNorm = "synced"
    attention: Attention = "gather"
    recomputed_halos: tuple[tuple[str, str], ...] = ()
    border_first: bool = False
    zero: int = 0
    stages_at: int = 0

    @property
    def num_stages(self) -> int:
        return len(self.stage_starts) + 1

    @property
    def stage_size(self) -> int:
        """Engines in one stage."""
        return prod(axis.size for axis in self.axes)

    @property
    def num_engines(self) -> int:
        return self.num_stages * self.stage_size

    @property
    def cuts_space(self) -> bool:
        """Whether an axis cuts a dimension that has halos."""
        return any(axis.cut in SPACE for axis in self.axes)

    def coordinates(self) -> Iterator[tuple[int, ...]]:
        """Coordinates of the engines of a stage, in order of rank."""
        return product(*(range(axis.size) for axis in self.axes))

    def rank(self, stage: int, coords: tuple[int, ...]) -> int:
        """The engine's number."""
        index = 0
        for size, digit in zip(self._sizes, self._digits(stage, coords), strict=True):
            index = index * size + digit
        return index

    def place(self, rank: int) -> tuple[int, tuple[int, ...]]:
        """The stage and the coordinates of an engine: the inverse of ``rank``."""
        digits: list[int] = []
        for size in reversed(self._sizes):
            rank, digit = divmod(rank, size)
            digits.insert(0, digit)
        return digits.pop(self.stages_at), tuple(digits)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self._digits(self.num_stages, tuple(axis.size for axis in self.axes))

    def _digits(self, stage: int, coords: tuple[int, ...]) -> tuple[int, ...]:
        return (*coords[: self.stages_at], stage, *coords[self.stages_at :])

    def group(self, stage: int, coords: tuple[int, ...], axis: int) -> tuple[int, ...]:
        """Ranks of the engines that differ from this one along one axis only, itself included, in order."""
        others = (coords[:axis] + (c,) + coords[axis + 1 :] for c in range(self.axes[axis].size))
        return tuple(self.rank(stage, c) for c in others)

    @property
    def key(self) -> str:
        """All of the plan in one text: equal for equal plans only."""
        return msgspec.json.encode(self, order="sorted").decode()

    def describe(self) -> str:
        """One line: ``data 2 (batch 3:1) × stages 2 × tensor 2 (height), 4 micro-batches, 1f1b``."""
        words = []
        for axis in self.axes:
            shares = " " + ":".join(f"{s:g}" for s in axis.shares) if axis.shares else ""
            words.append(f"{axis.name} {axis.size} ({axis.cut}{shares})")
        if self.num_stages > 1:
            words.append(f"stages {self.num_stages}")
        line = " × ".join(words) or "one engine"
        if self.micro_batches > 1:
            line += f", {self.micro_batches} micro-batches, {self.schedule}"
        line += ", local batch norm" if self.batch_norm == "local" else ""
        line += ", ring attention" if self.attention == "ring" else ""
        runs = len(self.recomputed_halos)
        line += ", halos recomputed" + (f" in {runs} runs" if runs > 1 else "") if runs else ""
        line += ", borders first" if self.border_first else ""
        line += f", ZeRO-{self.zero}" if self.zero else ""
        return line + (f", {self.axes[self.stages_at - 1].name} outside of stages" if self.stages_at else "")
