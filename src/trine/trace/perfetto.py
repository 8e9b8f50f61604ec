"""Export to the Chrome trace format, which ui.perfetto.dev and chrome://tracing open.

Each trace is one process of the file, each engine one thread of it, each instruction a complete event; waiting is an
event inside it, drawn at its start.  Several traces lie side by side in one file.  Format: "Trace Event
Format", Google (2016).
"""

from typing import Any

import msgspec

from trine.trace.trace import Span, Trace

MICRO = 1e6


def chrome_json(*traces: Trace) -> bytes:
    """A file with all these traces on one clock that starts at 0."""
    events: list[dict[str, Any]] = []
    for number, trace in enumerate(traces):
        name = f"{trace.label} {trace.source}".strip() + ("" if trace.calibrated else " (uncalibrated)")
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}})
        for engine, stage in enumerate(trace.stages):
            what = {"name": f"engine {engine} (stage {stage})"}
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": engine, "args": what})
        for span in trace.spans:
            events += _events(span, number)
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _events(span: Span, process: int) -> list[dict[str, Any]]:
    name = f"{span.kind} {span.id}" + ("" if span.micro_batch is None else f" micro-batch {span.micro_batch}")
    place = {"ph": "X", "pid": process, "tid": span.engine}
    details = {"bytes": span.bytes, "wait_us": span.wait_s * MICRO}
    times = {"ts": span.start_s * MICRO, "dur": span.duration_s * MICRO}
    result = [{**place, **times, "name": name, "cat": span.kind, "args": details}]
    if span.wait_s > 0:
        result.append({**place, **times, "name": "wait", "cat": "wait", "dur": span.wait_s * MICRO})
    return result
