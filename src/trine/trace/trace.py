"""Trace: what every engine did in one step, or will do by prediction.

The runtime and the simulator write the same value, instruction by instruction in the order of the Program, so that
predicted against measured is a subtraction (see :mod:`trine.trace.difference`).
"""

from itertools import groupby
from typing import Literal

import msgspec

COMMUNICATION = ("move", "move_back", "combine")
Source = Literal["predicted", "measured"]


class Span(msgspec.Struct, frozen=True):
    """One instruction of one engine, from ``start_s`` to ``end_s`` seconds after the step began.

    ``id`` is the instruction's own (a segment, transfer or combine of that engine's Program); ``wait_s`` is the part of
    the span in which the engine did nothing but wait for others; ``bytes`` left the engine during it.
    """

    engine: int
    kind: str
    id: int
    micro_batch: int | None
    start_s: float
    end_s: float
    wait_s: float = 0.0
    bytes: int = 0

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def busy_s(self) -> float:
        return self.duration_s - self.wait_s


class Trace(msgspec.Struct, frozen=True):
    """One step.  Spans are grouped by engine, in order of execution; ``stages[e]`` is the stage of engine e.

    ``calibrated``: a prediction rests on measurements only (always true for a measured trace).
    """

    spans: tuple[Span, ...]
    source: Source
    stages: tuple[int, ...]
    label: str = ""
    calibrated: bool = True

    @property
    def num_engines(self) -> int:
        return len(self.stages)

    @property
    def makespan_s(self) -> float:
        """Seconds from the start of the step to the end of the last engine."""
        return max((span.end_s for span in self.spans), default=0.0)

    def by_engine(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each engine."""
        groups = {engine: tuple(spans) for engine, spans in groupby(self.spans, key=lambda span: span.engine)}
        return tuple(groups.get(engine, ()) for engine in range(self.num_engines))

    def busy_s(self) -> tuple[float, ...]:
        """Seconds in which each engine computed or copied, waiting left out."""
        return tuple(sum(span.busy_s for span in spans) for spans in self.by_engine())

    def utilisation(self) -> tuple[float, ...]:
        """The busy share of the makespan of each engine."""
        return tuple(busy / self.makespan_s if self.makespan_s else 0.0 for busy in self.busy_s())

    @property
    def bubble_share(self) -> float:
        """The share of all engines' time in which they wait or have nothing to do.

        For p equal stages and m micro-batches without communication it is (p - 1) / (m + p - 1).
        """
        return 1.0 - sum(self.utilisation()) / self.num_engines if self.num_engines else 0.0

    def communication_s(self) -> tuple[float, ...]:
        """Exposed communication of each engine: seconds in which it hands over, copies or waits for others."""
        return tuple(sum(span.duration_s for span in spans if span.kind in COMMUNICATION) for spans in self.by_engine())

    def waiting_s(self) -> tuple[float, ...]:
        """Seconds in which each engine waited for others inside its instructions."""
        return tuple(sum(span.wait_s for span in spans) for spans in self.by_engine())

    def bytes_sent(self) -> tuple[int, ...]:
        """Bytes that left each engine."""
        return tuple(sum(span.bytes for span in spans) for spans in self.by_engine())

    @property
    def slowest_stage(self) -> int:
        """The stage that sets the pace: the one with the busiest engine."""
        busy = self.busy_s()
        return self.stages[max(range(self.num_engines), key=lambda engine: busy[engine])]

    def by_kind(self) -> dict[str, float]:
        """Busy seconds of all engines by kind of instruction, the largest first, and ``"waiting"``."""
        result: dict[str, float] = {}
        for span in self.spans:
            result[span.kind] = result.get(span.kind, 0.0) + span.busy_s
            result["waiting"] = result.get("waiting", 0.0) + span.wait_s
        return dict(sorted(result.items(), key=lambda item: -item[1]))

    def to_json(self) -> bytes:
        """The trace as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(text: bytes | str) -> "Trace":
        """The inverse of :meth:`to_json`."""
        return msgspec.json.decode(text, type=Trace)
