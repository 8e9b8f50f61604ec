"""A recorded step has every instruction in order, on every runtime, and leaves the engines as they were."""

from itertools import pairwise

import pytest
from tests.run.nets import job, plan

from trine.run.runner import RUNNERS, runner
from trine.simulate.volume import bytes_sent


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("name", ["data", "1f1b"])
def test_spans_are_the_programs_in_order(on: str, name: str) -> None:
    now = job("net")
    made = plan("net", name)
    programs = now.compiled(made).programs()
    engines = runner(on, programs, now.state(), None)
    try:
        trace = engines.trace(now.step(made), "a label")
    finally:
        engines.close()
    assert (trace.source, trace.label) == ("measured", "a label")
    assert trace.stages == tuple(program.stage for program in programs)
    for program, spans in zip(programs, trace.by_engine(), strict=True):
        assert [(s.kind, s.id, s.micro_batch) for s in spans] == [
            (i.kind, i.id, i.micro_batch) for i in program.instructions
        ]
        assert sum(span.bytes for span in spans) == bytes_sent(program)
        assert all(0 <= span.wait_s <= span.duration_s for span in spans)
        assert all(a.end_s <= b.start_s for a, b in pairwise(spans))
    assert min(span.start_s for span in trace.spans) == 0


@pytest.mark.parametrize("on", ["lockstep", "threads"])
def test_nothing_is_left_attached(on: str) -> None:
    now, made = job("net"), plan("net", "data")
    engines = runner(on, now.compiled(made).programs(), now.state(), None)
    try:
        engines.trace(now.step(made))
        for engine in engines.engines:  # type: ignore[attr-defined]
            assert engine.recorder is None
            assert "get" not in vars(engine.transport)
        assert engines.step(now.step(made)).results
    finally:
        engines.close()
