"""Estimate: time and memory of a plan from an outline, without compiling it.

    training     w_1 + … + w_p + (m - 1) max w + messages + combine + optimizer      (1F1B: Narayanan et al., 2021, 2.2)
    inference    the same with forward times alone, without the last two

w_s is what stage s takes for one of m micro-batches, talk along the axes included.  Stages are cut where the largest w
is least: by bisection on it, with each stage as long as that and memory allow, which is optimal since both only grow.
Left out: waiting by jitter, talk hidden behind work, and what engines that share a link take from each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb

import numpy as np

from trine.cost.collectives import over_cluster_s
from trine.plan.plan import FEATURES
from trine.planner.fleet import Fleet
from trine.planner.outline import Array, Outline, Talk

HALVINGS = 10  # of the interval in which the largest stage's time is sought
MOST_DIVISIONS = 60  # into stages, of which each is looked at


@dataclass(frozen=True, order=True)
class Degrees:
    """How many ways: data x stages x the outline's tiles, micro-batches of ``rows`` rows on each engine.

    stages_inside: stages are side by side and data outside of them, else the other way round.  zero: as in a plan.
    """

    data: int
    stages: int
    rows: int
    micro_batches: int
    stages_inside: bool = False
    zero: int = 0


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step, and the parts of it that are not the slowest stage's own work; bytes that the engines of each
    stage need; and where stages start (units)."""

    time_s: float
    bubble_s: float
    talk_s: float
    messages_s: float
    combine_s: float
    optimizer_s: float
    needs_bytes: tuple[float, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Pace:
    """Seconds of each unit for one micro-batch on an engine like the first, their running sum, and the speed of each
    stage's engines in units of that one's."""

    units: Array
    running: Array
    speeds: tuple[float, ...]


@dataclass(frozen=True)
class Load:
    """Units with so many rows, on the first engine: seconds of work, and with the tiles' talk; bytes that are kept and
    handed over; running sums, which begin with 0."""

    units: Array
    running_work: Array
    running_units: Array
    running_kept: Array
    crossing: Array
    inside: Array


class Estimator:
    """Estimates of one outline on one fleet; what several of them share is computed once."""

    def __init__(self, outline: Outline, fleet: Fleet) -> None:
        self.outline, self.fleet = outline, fleet
        self.tiles = outline.num_tiles
        self.loads: dict[int, Load] = {}
        self.work: dict[tuple[int, int], Array] = {}
        self.cuts: dict[tuple[object, ...], tuple[int, ...] | None] = {}
        self.rests: dict[float, Array] = {}
        self.least_work: dict[int, float] = {}
        self.allowed = np.array([i for i, name in enumerate(outline.starts) if name and i > 0], np.int64)
        self.room_bytes: float = min(engine.memory_bytes for engine in fleet.cluster.engines)

    def work_s(self, rows: int, engine: int) -> Array:
        """Seconds of each unit's own work for so many rows, forward and backward."""
        engine = self.fleet.distinct[engine]
        if (rows, engine) not in self.work:
            flops, traffic = self.outline.flops.at(rows), self.outline.traffic.at(rows)
            result = np.zeros(self.outline.num_units)
            for number, (kind, dtype) in enumerate(self.outline.classes):
                mine = self.outline.class_of == number
                ahead = self.fleet.roofline(engine, kind, dtype, False)
                result[mine] = ahead.times_s(flops[mine], traffic[mine])
                if self.outline.training:
                    back = self.fleet.roofline(engine, kind, dtype, True)
                    mine &= self.outline.active
                    result[mine] += back.times_s(2 * flops[mine], 2 * traffic[mine])
            self.work[rows, engine] = result
        return self.work[rows, engine]

    def moved_s(self, num_bytes: float) -> float:
        """One pass over that many bytes."""
        return self.fleet.roofline(0, "matmul", "float32", False).time_s(0.0, num_bytes)

    def talk_s(self, talk: Talk, rows: int, engines: Sequence[int]) -> float:
        """Seconds of one talk, there and back, with what is put together from it."""
        received, made = (per_row * rows + fixed for per_row, fixed in (talk.received, talk.made))
        if talk.over_data and talk.operation == "all_gather":  # of two coordinates in the outline
            received, made = received * len(engines) / 2, made * len(engines) / 2
        once = self.fleet.talk_s(talk.operation, engines, received)
        back = self.outline.training and talk.active
        return (2 if back else 1) * once + self.moved_s(2 * made) + (self.moved_s(4 * made) if back else 0.0)

    def load(self, rows: int) -> Load:
        """Everything that depends on the rows alone."""
        if rows not in self.loads:
            work, group = self.work_s(rows, 0), range(self.tiles)
            units = work.copy()
            for talk in self.outline.talks:
                if not talk.over_data:
                    units[talk.unit] += self.talk_s(talk, rows, group)
            kept = self.outline.kept.at(rows) if self.outline.training else np.zeros(self.outline.num_units)
            inside = self.outline.traffic.at(rows) - self.outline.resting
            self.loads[rows] = Load(
                units, _running(work), _running(units), _running(kept), self.outline.crossing.at(rows), inside
            )
        return self.loads[rows]

    def bound_s(self, degrees: Degrees) -> float:
        """No plan of these degrees takes less: work alone, in stages of equal length."""
        if degrees.rows not in self.least_work:
            each = (float(self.work_s(degrees.rows, kind).sum()) for kind in self.fleet.kinds)
            self.least_work[degrees.rows] = min(each)
        return self.least_work[degrees.rows] / degrees.stages * (degrees.micro_batches + degrees.stages - 1)

    def estimate(self, degrees: Degrees) -> Estimate | None:
        """None where no division into stages fits the memory."""
        pace = self.pace(degrees)
        starts = self.cut(degrees, pace)
        return None if starts is None else self.at(degrees, pace, starts)

    def strides(self, degrees: Degrees) -> tuple[int, int]:
        """How far apart neighbours along data and along stages are."""
        if degrees.stages_inside:
            return degrees.stages * self.tiles, self.tiles
        return self.tiles, degrees.data * self.tiles

    def pace(self, degrees: Degrees) -> Pace:
        """What units take, talk over the data axis included, and how fast stages are."""
        load, speeds = self.load(degrees.rows), self.speeds(degrees)
        talks = [talk for talk in self.outline.talks if talk.over_data] if degrees.data > 1 else []
        if not talks:
            return Pace(load.units, load.running_units, speeds)
        over_data, _ = self.strides(degrees)
        units, group = load.units.copy(), range(0, degrees.data * over_data, over_data)
        for talk in talks:
            units[talk.unit] += self.talk_s(talk, degrees.rows, group)
        return Pace(units, _running(units), speeds)

    def at(self, degrees: Degrees, pace: Pace, starts: tuple[int, ...]) -> Estimate:
        """With stages that start at these units."""
        p, m = degrees.stages, degrees.micro_batches
        over_data, over_stages = self.strides(degrees)
        load, running, speeds = self.load(degrees.rows), pace.running, pace.speeds
        edges = [0, *starts, self.outline.num_units]
        stages = [float(running[b] - running[a]) / v for a, b, v in zip(edges, edges[1:], speeds, strict=False)]
        work = load.running_work
        slowest = max(range(p), key=stages.__getitem__)
        talk = stages[slowest] - float(work[edges[slowest + 1]] - work[edges[slowest]]) / speeds[slowest]
        way = 2 if self.outline.training else 1
        sent = [
            way * self.fleet.talk_s("p2p", (s * over_stages, (s + 1) * over_stages), float(load.crossing[start]))
            for s, start in enumerate(starts)
        ]
        combine = optimizer = 0.0
        if self.outline.training:
            trained = [float(self.outline.trained[a:b].sum()) for a, b in pairwise(edges)]
            combine = (self.gather_s if degrees.zero else self.combine_s)(max(trained), degrees, over_data)
            optimizer = self.moved_s(5 * max(trained) / (degrees.data if degrees.zero else 1))
        bubble = sum(stages) - stages[slowest]
        return Estimate(
            time_s=m * stages[slowest] + bubble + sum(sent) + combine + optimizer, bubble_s=bubble, talk_s=m * talk,
            messages_s=sum(sent), combine_s=combine, optimizer_s=optimizer, needs_bytes=self.needs(degrees, edges),
            starts=starts,
        )  # fmt: skip

    def sent_bytes(self, degrees: Degrees, starts: Sequence[int]) -> float:
        """What the busiest engine sends in a step."""
        edges = (0, *starts, self.outline.num_units)
        way = 2 if self.outline.training else 1
        talked = np.zeros(self.outline.num_units + 1)
        for talk in self.outline.talks:
            n = degrees.data if talk.over_data else self.tiles
            num_bytes = talk.received[0] * degrees.rows + talk.received[1]
            share = {"p2p": 1.0, "all_reduce": 2 * (n - 1) / n}.get(talk.operation, (n - 1) / n)
            talked[talk.unit + 1] += share * num_bytes * (way if talk.active else 1)
        running, crossing = np.cumsum(talked), self.outline.crossing.at(degrees.rows)
        n = degrees.data * (1 if self.cuts_weights else self.tiles)
        result = 0.0
        for stage, (a, b) in enumerate(pairwise(edges)):
            passed = (crossing[b] if stage < degrees.stages - 1 else 0.0) + (crossing[a] if way == 2 and stage else 0.0)
            summed = 2 * (n - 1) / n * float(self.outline.trained[a:b].sum()) if way == 2 else 0.0
            result = max(result, degrees.micro_batches * float(running[b] - running[a] + passed) + summed)
        return result

    @property
    def cuts_weights(self) -> bool:
        """Whether tiles have weights of their own, else each has all of them."""
        return self.outline.axis is None or self.outline.axis.cut in FEATURES

    def speed(self, rows: int, engine: int) -> float:
        """Of an engine on all the work, in units of the first one's."""
        return float(self.work_s(rows, 0).sum()) / float(self.work_s(rows, engine).sum())

    def speeds(self, degrees: Degrees) -> tuple[float, ...]:
        """Of each stage: the mean of its engines, which get shares of the rows and the tiles by their speed."""
        if not self.fleet.unequal:
            return (1.0,) * degrees.stages
        over_data, over_stages = self.strides(degrees)
        offsets = [c * over_data + tile for c in range(degrees.data) for tile in range(self.tiles)]
        return tuple(
            sum(self.speed(degrees.rows, stage * over_stages + offset) for offset in offsets) / len(offsets)
            for stage in range(degrees.stages)
        )

    def combine_s(self, num_bytes: float, degrees: Degrees, over_data: int) -> float:
        """The sum of gradients over the data axis; over the tiles too where these do not cut weights."""
        tiles = range(1 if self.cuts_weights else self.tiles)
        engines = [c * over_data + tile for c in range(degrees.data) for tile in tiles]
        if len(engines) < 2:
            return 0.0
        key = ("combine", over_data, len(tiles), degrees.data, num_bytes)
        if key not in self.fleet.known:
            self.fleet.known[key] = over_cluster_s("all_reduce", self.fleet.cluster, engines, num_bytes)
        return self.fleet.known[key] + self.moved_s(2 * num_bytes)

    def gather_s(self, num_bytes: float, degrees: Degrees, over_data: int) -> float:
        """Weights gathered over the data axis and gradients summed into their parts, each by messages from everybody to
        everybody else; over tiles that do not cut weights, gradients of the parts are summed besides."""
        key = ("gather", over_data, degrees.data, num_bytes)
        if key not in self.fleet.known:
            part = num_bytes / degrees.data
            links = [self.fleet.cluster.link(0, c * over_data) for c in range(1, degrees.data)]
            once = sum(part / link.bandwidth_bytes_per_s for link in links) + max(link.latency_s for link in links)
            self.fleet.known[key] = 2 * once
        rest = self.fleet.talk_s("all_reduce", range(1 if self.cuts_weights else self.tiles), num_bytes / degrees.data)
        return self.fleet.known[key] + self.moved_s(2 * num_bytes) + self.moved_s(4 * num_bytes) + rest

    def cut(self, degrees: Degrees, pace: Pace) -> tuple[int, ...] | None:
        """The units at which stages 1, 2, … begin: of few divisions the one that takes least, else the one whose
        slowest stage takes least; None if nothing fits."""
        if degrees.stages == 1:
            return () if self.fits(degrees, ()) else None
        if len(self.allowed) < degrees.stages - 1:
            return None
        if comb(len(self.allowed), degrees.stages - 1) <= MOST_DIVISIONS:
            return self._least(degrees, pace)
        data = degrees.data if any(talk.over_data for talk in self.outline.talks) else 1
        key = (degrees.stages, degrees.rows, data, pace.speeds)
        if key not in self.cuts:
            self.cuts[key] = self._cut(degrees, pace, float("inf"))
        free = self.cuts[key]
        if free is None or self.fits(degrees, free):
            return free
        held = (*key, min(degrees.micro_batches, degrees.stages), degrees.data if degrees.zero else 1)
        if held not in self.cuts:
            self.cuts[held] = self._cut(degrees, pace, self.room_bytes)
        return self.cuts[held]

    def fits(self, degrees: Degrees, starts: tuple[int, ...]) -> bool:
        """Whether engines have the memory for stages that start there."""
        return max(self.needs(degrees, (0, *starts, self.outline.num_units))) <= self.room_bytes

    def _least(self, degrees: Degrees, pace: Pace) -> tuple[int, ...] | None:
        """Of all divisions that fit, the one that takes least."""
        best, best_s = None, float("inf")
        for starts in combinations(self.allowed.tolist(), degrees.stages - 1):
            found = self.at(degrees, pace, starts)
            if max(found.needs_bytes) <= self.room_bytes and found.time_s < best_s:
                best, best_s = starts, found.time_s
        return best

    def _cut(self, degrees: Degrees, pace: Pace, room_bytes: float) -> tuple[int, ...] | None:
        """By bisection on the time of the slowest stage."""
        rests, kept = self._running_needs(degrees)
        flights = [self.in_flight(degrees, stage) for stage in range(degrees.stages)]
        needs = {flight: rests + flight * kept for flight in set(flights)}
        room = [(needs[flight], room_bytes) for flight in flights]
        total = float(pace.running[-1])
        low, best = total / sum(pace.speeds), None
        for factor in (1.05, 1.2, 1.5, 2.0, 4.0, float("inf")):  # mostly it is near what equal stages would take
            high = min(low * factor, total / min(pace.speeds))
            best = self._reach(high, pace, room)
            if best is not None:
                break
        if best is None:
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            found = self._reach(middle, pace, room)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        return best

    def _running_needs(self, degrees: Degrees) -> tuple[Array, Array]:
        """Running sums of what rests, and of what a micro-batch in flight keeps."""
        states = (2 + self.fleet.states) if self.outline.training else 1.0
        if degrees.zero:  # weights and gradients for a step, and a share of weights and states
            states = 2 + (1 + self.fleet.states) / degrees.data
        if states not in self.rests:
            rests = states * self.outline.trained + (self.outline.resting - self.outline.trained)
            self.rests[states] = _running(rests)
        return self.rests[states], self.load(degrees.rows).running_kept

    def in_flight(self, degrees: Degrees, stage: int) -> int:
        """Micro-batches that a stage holds at once under 1F1B."""
        return min(degrees.micro_batches, degrees.stages - stage)

    def _reach(
        self, limit_s: float, pace: Pace, room: Sequence[tuple[Array, float]]
    ) -> tuple[int, ...] | None:  # fmt: skip
        """Stages of at most that time, each as long as it may be; None if they do not reach the end.  ``room``: of each
        stage, running sums of bytes and how many there may be."""
        starts: list[int] = []
        running, position, count = pace.running, 0, len(pace.speeds)
        for stage, (needs, most) in enumerate(room):
            by_time = running.searchsorted(running[position] + limit_s * pace.speeds[stage] * (1 + 1e-12), "right") - 1
            by_room = needs.searchsorted(needs[position] + most, "right") - 1
            end = min(by_time, by_room)
            if stage == count - 1:
                return tuple(starts) if end >= len(running) - 1 else None
            last = len(self.allowed) - (count - 1 - stage)  # leave a start for each stage behind
            place = min(int(self.allowed.searchsorted(end, "right")) - 1, last)
            if place < 0 or self.allowed[place] <= position:
                return None
            position = int(self.allowed[place])
            starts.append(position)
        return None

    def needs(self, degrees: Degrees, edges: Sequence[int]) -> tuple[float, ...]:
        """Bytes of the engines of each stage: what rests, what is kept, and what lives inside one unit."""
        rests, kept = self._running_needs(degrees)
        inside, result = self.load(degrees.rows).inside, []
        for stage, (a, b) in enumerate(pairwise(edges)):
            flying = self.in_flight(degrees, stage) * (kept[b] - kept[a])
            result.append(float(rests[b] - rests[a] + flying + inside[a:b].max(initial=0.0)))
        return tuple(result)


def _running(values: Array) -> Array:
    """Sums of the first 0, 1, 2, … values."""
    return np.concatenate(([0.0], np.cumsum(values)))
