"""The measured trace: what each engine did in one step, written by the engines themselves."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from torch import Tensor

from trine.program.program import Instruction
from trine.run.engine import Engine, Step
from trine.run.transport import Tag
from trine.trace.trace import Span, Trace


class Recorder:
    """Spans of one engine, by ``time.perf_counter``, which all processes of a machine share.

    Waiting is the time inside ``Transport.get``, which is timed as long as the recorder is attached.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.waited_s = engine, 0.0
        self.bytes_before, self.waited_before = engine.transport.bytes_sent, 0.0
        self.spans: list[Span] = []
        inner = engine.transport.get

        def timed_get(peer: int, tag: Tag, like: Tensor) -> Generator[None, None, Any]:
            start_s = time.perf_counter()
            result = yield from inner(peer, tag, like)
            self.waited_s += time.perf_counter() - start_s
            return result

        setattr(engine.transport, "get", timed_get)  # noqa: B010  a method is replaced on this one object
        engine.recorder = self

    def __call__(self, instruction: Instruction, start_s: float, end_s: float) -> None:
        """An instruction ended, its tiles freed."""
        sent, waited = self.engine.transport.bytes_sent, self.waited_s
        self.spans.append(
            Span(
                self.engine.program.rank, instruction.kind, instruction.id, instruction.micro_batch, start_s, end_s,
                waited - self.waited_before, sent - self.bytes_before,
            )
        )  # fmt: skip
        self.bytes_before, self.waited_before = sent, waited

    def detach(self) -> None:
        """The engine is as it was."""
        delattr(self.engine.transport, "get")
        self.engine.recorder = None


@contextmanager
def recorded(engines: Sequence[Engine]) -> Iterator[list[Recorder]]:
    """Engines of one process with a recorder each."""
    recorders = [Recorder(engine) for engine in engines]
    try:
        yield recorders
    finally:
        for recorder in recorders:
            recorder.detach()


class InProcess(Protocol):
    """Engines that run in this process."""

    engines: list[Engine]

    def step(self, step: Step, *, tensors: bool = True) -> object:
        """One step."""


def traced(runner: InProcess, step: Step, label: str = "") -> Trace:
    """Run one step and record it."""
    with recorded(runner.engines) as recorders:
        runner.step(step, tensors=False)
    stages = [engine.program.stage for engine in runner.engines]
    return measured_trace([recorder.spans for recorder in recorders], stages, label)


def measured_trace(spans: Sequence[Sequence[Span]], stages: Sequence[int], label: str = "") -> Trace:
    """The trace of one step from each engine's spans; it begins when the first engine does."""
    begin = min(own[0].start_s for own in spans)
    shifted = (
        msgspec.structs.replace(span, start_s=span.start_s - begin, end_s=span.end_s - begin)
        for own in spans
        for span in own
    )
    return Trace(tuple(shifted), "measured", tuple(stages), label)
