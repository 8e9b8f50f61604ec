"""The values of a comparison: rows with figures, and what batching gives beside replicas."""

from typing import Any

import msgspec

ROWS = ("one engine", "PyTorch, all cores", "data", "model", "tensor", "best mix")
INTERRUPTED = "Interrupted: rows without a measured figure are predicted."


class Figures(msgspec.Struct, frozen=True):
    """Of one step: seconds, samples or requests a second, bytes of tensors on the fullest engine (None: not known),
    bytes that the busiest engine sends."""

    time_s: float
    throughput_per_s: float
    memory_bytes: int | None
    bytes_sent: int | None


class Memory(msgspec.Struct, frozen=True):
    """Of one step, bytes of all engines that share memory, as threads do, or of the fullest of engines that are
    processes: tensors alive at once (without the inputs), and the resident size of a process that runs nothing else,
    its libraries included.  None: not known; errors: predicted over measured − 1.
    """

    tensors_predicted: int | None
    resident_predicted: int | None
    tensors_measured: int | None = None
    resident_measured: int | None = None
    tensors_error: float | None = None
    resident_error: float | None = None

    def measured(self, tensors: int, resident: int | None) -> "Memory":
        """With what was measured."""
        return Memory(
            self.tensors_predicted, self.resident_predicted, tensors, resident,
            _error(self.tensors_predicted, tensors), _error(self.resident_predicted, resident),
        )  # fmt: skip


def _error(predicted: int | None, measured: int | None) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured else None


class Row(msgspec.Struct, frozen=True):
    """One way to use the engines in one scenario.

    plan: the plan as JSON values, None for the plain module; predicted_at: when the prediction was written, before
    measured_at, when its run began; verified: equal to one engine, None where that was not judged; error: predicted
    over measured time − 1, raw and corrected by what the probes around the run say of the machine; note: what is to be
    known.
    """

    scenario: str
    row: str
    plan: dict[str, Any] | None
    describes: str
    predicted: Figures | None
    measured: Figures | None
    verified: bool | None
    reason: str
    predicted_at: str = ""
    measured_at: str = ""
    calibrated: bool = False
    error: float | None = None
    corrected_error: float | None = None
    note: str = ""
    memory: Memory | None = None

    @property
    def time_s(self) -> float:
        """Measured if it was, else predicted; infinite for a row that cannot be."""
        figures = self.measured or self.predicted
        return figures.time_s if figures is not None else float("inf")


class Batching(msgspec.Struct, frozen=True):
    """One engine answering batches of a size (measured), and the replicas beside it (by prediction)."""

    batch: int
    latency_s: float
    throughput_per_s: float
    replicas_latency_s: float
    replicas_throughput_per_s: float


class Comparison(msgspec.Struct, frozen=True):
    """What `trine compare` answers.  on: the runtime."""

    model: str
    engines: int
    machine: str
    date: str
    rows: tuple[Row, ...]
    batching: tuple[Batching, ...] = ()
    second_replica_from_per_s: float | None = None
    notes: tuple[str, ...] = ()
    on: str = "threads"

    @property
    def interrupted(self) -> bool:
        """Whether it was ended before it was complete."""
        return INTERRUPTED in self.notes

    def best(self, scenario: str) -> Row:
        """The fastest row of a scenario; measured rows count before predicted ones."""
        rows = [row for row in self.rows if row.scenario == scenario]
        return min(rows, key=lambda row: (row.measured is None, row.time_s))
