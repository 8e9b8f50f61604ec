"""Search: the best degrees of data, stages and tiles on any number of engines, by estimates.

For every way to cut tensors there is one outline; for each, data x stages x rows of a micro-batch are gone through from
the most engines down, and what cannot beat the best found by its work alone is passed over.  Degrees are taken from one
fixed list, so that more engines only ever add plans.  One engine, and some engines idle, are always among them.
"""

import time
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from trine.errors import TrineError
from trine.graph.graph import Graph
from trine.plan.build import cut_sizes
from trine.plan.plan import FEATURES, SPACE, Axis
from trine.planner.candidates import searched
from trine.planner.estimate import Degrees, Estimate, Estimator
from trine.planner.fleet import Fleet
from trine.planner.outline import Outline
from trine.units import BYTES

MOST_TILES = 64  # engines among which one tensor is cut
KEPT = 64  # candidates that are remembered, the best first
SLACK = 1.25  # times as long as the best, beyond which nothing is looked at
OutlineOf = Callable[[Axis | None], Outline]


@dataclass(frozen=True)
class Candidate:
    """Degrees under a cut, with what they should give."""

    axis: Axis | None
    outline: Outline
    degrees: Degrees
    estimate: Estimate

    @property
    def num_engines(self) -> int:
        return self.outline.num_tiles * self.degrees.data * self.degrees.stages

    @property
    def most_bytes(self) -> int:
        """What the fullest engine needs."""
        return int(max(self.estimate.needs_bytes))

    @property
    def order(self) -> tuple[float, int, Degrees, str]:
        """By time; of equal ones the one with the fewest engines."""
        cut = self.axis.cut if self.axis is not None else ""
        return self.estimate.time_s, self.num_engines, self.degrees, cut


@dataclass
class Found:
    """What a search found: candidates, the best first; one engine; the one that needs least memory; what each other
    combination died of; how many were estimated; cuts that were not looked at since the time was over."""

    candidates: list[Candidate] = field(default_factory=list)
    one_engine: Candidate | None = None
    least: Candidate | None = None
    died: dict[str, str] = field(default_factory=dict)
    num_estimated: int = 0
    left: tuple[str, ...] = ()

    @property
    def best_s(self) -> float:
        return self.candidates[0].estimate.time_s if self.candidates else float("inf")

    @property
    def limit_s(self) -> float:
        """What takes longer would not be remembered."""
        last = self.candidates[-1].estimate.time_s if len(self.candidates) >= KEPT else float("inf")
        return min(SLACK * self.best_s, last)

    def enter(self, candidate: Candidate) -> None:
        """Remember a candidate in its place."""
        if candidate.num_engines == 1 and self.one_engine is None:
            self.one_engine = candidate
        if candidate not in self.candidates:
            insort(self.candidates, candidate, key=lambda each: each.order)
            del self.candidates[KEPT:]


def degrees_up_to(limit: int, odds: tuple[int, ...] = (1, 3, 5, 7)) -> list[int]:
    """1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 …: a power of two times one of these."""
    every = {odd << shift for odd in odds for shift in range(limit.bit_length())}
    return sorted(number for number in every if number <= limit)


def tilings(graph: Graph, num_engines: int) -> Iterator[Axis | None]:
    """The ways to cut tensors: not at all, and each dimension that the model has in each number of parts."""
    yield None
    sizes = cut_sizes(graph)
    cuts = searched(sizes, (*SPACE, *FEATURES))
    if sizes.get("width") == sizes.get("height"):  # the one is as good as the other
        cuts = [cut for cut in cuts if cut != "width"]
    for size in degrees_up_to(min(num_engines, MOST_TILES), (1, 3))[1:]:
        for cut in cuts:
            if size <= sizes[cut] and (cut not in FEATURES or sizes[cut] % size == 0):
                yield Axis("tensor", size, cut)


def search(
    graph: Graph, outline_of: OutlineOf, fleet: Fleet, batch: int, budget_s: float | None = None,
    room_bytes: float | None = None,
) -> Found:  # fmt: skip
    """All of it, or what ``budget_s`` allows: at least the plans that cut no tensor.  ``room_bytes``: instead of the
    engines' memory."""
    found, end = Found(), float("inf") if budget_s is None else time.monotonic() + budget_s
    axes = list(tilings(graph, fleet.cluster.num_engines))
    estimators: list[tuple[Axis | None, Estimator]] = []
    for number, axis in enumerate(axes):
        if number and time.monotonic() > end:
            found.left = tuple(f"{a.cut} {a.size}" for a in axes[number:] if a is not None)
            break
        try:
            estimator = Estimator(outline_of(axis), fleet)
        except TrineError as error:
            found.died[f"tensor {axis.size} ({axis.cut})" if axis is not None else "one engine"] = str(error)
            continue
        estimator.room_bytes = room_bytes or estimator.room_bytes
        estimators.append((axis, estimator))
    for axis, estimator in estimators:  # a few from everywhere first, so that most of the rest need not be looked at
        _look(found, estimator, axis, batch, coarse=True)
    for axis, estimator in estimators:
        _look(found, estimator, axis, batch)
    return found


def _look(found: Found, estimator: Estimator, axis: Axis | None, batch: int, *, coarse: bool = False) -> None:
    """All degrees under one cut; ``coarse``: powers of two of stages, on as many engines as there are."""
    room = estimator.fleet.cluster.num_engines // estimator.tiles
    name = f"tensor {axis.size} ({axis.cut}) × " if axis is not None else ""
    for stages in degrees_up_to(min(room, len(estimator.allowed) + 1), (1,) if coarse else (1, 3)):
        fits, whole = False, set[tuple[int, int]]()
        ways = _ways(stages, room // stages, batch, training=estimator.outline.training)
        most = max(degrees_up_to(min(room // stages, batch)))
        for degrees in ways:
            if coarse and (degrees.data < most or degrees.rows & (degrees.rows - 1) or degrees.stages_inside):
                continue
            one = estimator.tiles * degrees.data * stages == 1
            if (stages == 1 and (degrees.data, degrees.zero) in whole) or (
                not one and estimator.room_bytes < float("inf") and estimator.bound_s(degrees) >= found.limit_s
            ):
                fits = True  # or would, and does not matter
                continue
            estimate = estimator.estimate(degrees)
            found.num_estimated += 1
            if estimate is None:
                continue
            candidate = Candidate(axis, estimator.outline, degrees, estimate)
            if found.least is None or candidate.most_bytes < found.least.most_bytes:
                found.least = candidate
            if candidate.most_bytes <= estimator.room_bytes:
                fits = True
                whole.add((degrees.data, degrees.zero))  # without stages, more micro-batches only save memory
                found.enter(candidate)
        if not fits and not coarse:
            limit = BYTES.format(int(estimator.room_bytes))
            found.died[f"{name}stages {stages}"] = f"Too little memory: an engine needs more than {limit}."


def _ways(stages: int, most: int, batch: int, *, training: bool) -> Iterator[Degrees]:
    """Data and micro-batches, the most engines first.  The order of stages and data on the engines goes both ways."""
    for data in reversed(degrees_up_to(min(most, batch))):
        share = -(-batch // data)
        for rows in _rows(share):
            m = -(-share // rows)
            if m * data > batch:  # some would be empty
                continue
            for inside in (False, True) if stages > 1 and data > 1 else (False,):
                yield Degrees(data, stages, rows, m, inside)
                if data > 1 and training:
                    yield Degrees(data, stages, rows, m, inside, zero=1)


def _rows(share: int) -> Sequence[int]:
    """Rows of a micro-batch: the share, and halves of it."""
    result = [share]
    while result[-1] > 1:
        result.append(-(-result[-1] // 2))
    return result
