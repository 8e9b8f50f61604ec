"""The measured trace: what each engine did in one step, written by the engines themselves."""

import time
from collections.abc import Generator, Sequence
from typing import Any

from torch import Tensor

from trine.program.program import Instruction
from trine.run.engine import Engine
from trine.run.transport import Tag
from trine.trace.trace import Span, Trace


class Recorder:
    """Spans of one engine; assign it to ``engine.recorder``.

    Waiting is the time inside ``Transport.get``, which this recorder times from then on.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.waited_s = engine, 0.0
        self.bytes_before, self.waited_before = engine.transport.bytes_sent, 0.0
        self.spans: list[tuple[Instruction, float, float, float, int]] = []
        inner = engine.transport.get

        def timed_get(peer: int, tag: Tag, like: Tensor) -> Generator[None, None, Any]:
            start_s = time.perf_counter()
            result = yield from inner(peer, tag, like)
            self.waited_s += time.perf_counter() - start_s
            return result

        setattr(engine.transport, "get", timed_get)  # noqa: B010  a method is replaced on this one object

    def __call__(self, instruction: Instruction, start_s: float, end_s: float) -> None:
        """An instruction ended, its tiles freed; times are of ``time.perf_counter``."""
        sent, waited = self.engine.transport.bytes_sent, self.waited_s
        self.spans.append((instruction, start_s, end_s, waited - self.waited_before, sent - self.bytes_before))
        self.bytes_before, self.waited_before = sent, waited

    def clear(self) -> None:
        """Forget the spans: call it before the step that is to be recorded."""
        self.spans.clear()


def measured_trace(recorders: Sequence[Recorder], label: str = "") -> Trace:
    """The trace of the last recorded step of engines in one process; it begins when the first of them does."""
    begin = min(recorder.spans[0][1] for recorder in recorders)
    spans = []
    for recorder in recorders:
        rank = recorder.engine.program.rank
        for at, start_s, end_s, wait_s, num_bytes in recorder.spans:
            spans.append(
                Span(rank, at.kind, at.id, at.micro_batch, start_s - begin, end_s - begin, wait_s, num_bytes)
            )  # fmt: skip
    stages = tuple(recorder.engine.program.stage for recorder in recorders)
    return Trace(tuple(spans), "measured", stages, label)
