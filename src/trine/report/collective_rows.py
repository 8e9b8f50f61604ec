"""Rows of collective tables: all-reduces and messages between GPUs, from data sheets and what links reach."""

from collections.abc import Sequence

from trine.cost.links import wires
from trine.report.score import Outcome
from trine.report.tables import Line
from trine.report.training_rows import Unpredictable, attempt, need, preset_of

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")


def collective_outcomes(lines: Sequence[Line]) -> list[Outcome]:
    """Each row predicted, or the reason why not."""
    return [_outcome(line) for line in lines]


def _outcome(line: Line) -> Outcome:
    time_us = line.number_or_none("time_us")
    predicted, why = attempt(time_us, "time_us is not given", lambda: _time_s(line))
    ranks = line.text("ranks")
    return Outcome(
        file=line.file, row=line.number, unit="s", measured=(time_us or 0.0) * 1e-6, predicted=predicted, reason=why,
        group=f"{line.text('source_ref').split('@')[0]}, {line.text('hardware')}, {line.text('collective')}",
        use=line.use, label=f"{ranks} ranks, {line.text('nodes')} nodes, {line.text('bytes')} bytes",
    )  # fmt: skip


def _time_s(line: Line) -> float:
    operation, hardware = line.text("collective"), line.text("hardware")
    ranks, nodes, size = need(line, "ranks"), need(line, "nodes"), need(line, "bytes")
    if operation not in OPERATIONS:
        raise Unpredictable(f"the collective {operation!r} is not described")
    if "pairwise" in hardware:
        raise Unpredictable(f"the links of {hardware!r} (pairs of PCIe cards) are in no preset")
    if "ethernet" in line.text("interconnect").lower():
        raise Unpredictable("the rate of the Ethernet between the nodes is not stated")
    if ranks % nodes:
        raise Unpredictable("the ranks do not divide by the nodes")
    links = wires(preset_of(hardware))
    if operation == "send_recv":
        return links.send_s(size, inside=nodes == 1)
    time = links.all_reduce_s if operation == "all_reduce" else links.gather_s
    return time(size, ranks // nodes, nodes)
