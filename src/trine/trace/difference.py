"""Predicted minus measured, instruction by instruction."""

from collections.abc import Iterable

import msgspec

from trine.errors import BadInput
from trine.trace.trace import Trace


class Difference(msgspec.Struct, frozen=True):
    """One instruction in two traces; seconds of work and of waiting in each."""

    engine: int
    kind: str
    id: int
    micro_batch: int | None
    predicted_s: float
    measured_s: float
    predicted_wait_s: float
    measured_wait_s: float

    @property
    def error_s(self) -> float:
        """Seconds of work by which the prediction is too long."""
        return self.predicted_s - self.measured_s


def subtract(predicted: Trace, measured: Trace) -> tuple[Difference, ...]:
    """Both traces, matched in order.  Raises BadInput unless they are of the same Programs."""
    result = []
    for engine, (ours, theirs) in enumerate(zip(predicted.by_engine(), measured.by_engine(), strict=False)):
        for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if (a.kind, a.id, a.micro_batch) != (b.kind, b.id, b.micro_batch):
                raise _unlike(f"Instruction {number} of engine {engine} is {a.kind} {a.id} in one and {b.kind} {b.id}")
            result.append(
                Difference(engine, a.kind, a.id, a.micro_batch, a.busy_s, b.busy_s, a.wait_s, b.wait_s)
            )  # fmt: skip
        if len(ours) != len(theirs):
            raise _unlike(f"Engine {engine} has {len(ours)} instructions in one and {len(theirs)}")
    if predicted.num_engines != measured.num_engines:
        raise _unlike(f"One has {predicted.num_engines} engines and the other {measured.num_engines}; it")
    return tuple(result)


def by_kind(differences: Iterable[Difference]) -> dict[str, tuple[float, float]]:
    """Kind of instruction → (predicted, measured) seconds of work of all engines, and the same for ``"waiting"``."""
    result: dict[str, tuple[float, float]] = {}

    def add(kind: str, predicted_s: float, measured_s: float) -> None:
        before = result.get(kind, (0.0, 0.0))
        result[kind] = (before[0] + predicted_s, before[1] + measured_s)

    for item in differences:
        add(item.kind, item.predicted_s, item.measured_s)
        add("waiting", item.predicted_wait_s, item.measured_wait_s)
    return result


def _unlike(what: str) -> BadInput:
    return BadInput(f"{what} in the other trace.", "Only two traces of the same plan can be subtracted.")
