"""Rows of latency tables: one image through a net on a device, whose rates come from the rows marked ``scale``, or
where a device has none from those of three nets that are always the same.

Beside the prediction stands the simple rule: the mean time of the net on the other devices of the table, times how much
slower this device is in the median of the nets that give its rates.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from trine.cost.nets import FITTED_NETS, FITTED_NETS_INT8, NETS, fit
from trine.report.score import Outcome
from trine.report.tables import Line

Times = Mapping[str, float]
NETS_NEEDED = 3


def latency_outcomes(lines: Sequence[Line]) -> list[Outcome]:
    """Each row predicted from its device's rates, or the reason why not."""
    devices: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        devices.setdefault(_device(line), []).append(line)
    times = {device: _times(rows) for device, rows in devices.items()}
    found = []
    for device, given in devices.items():
        rows = _marked(given)
        peers = [known for other, known in times.items() if other[0] != device[0] and other[-1] == device[-1]]
        found += _of_device(rows, _times([line for line in rows if line.use == "scale"]), peers)
    return found


def _marked(rows: Sequence[Line]) -> Sequence[Line]:
    """The rows, with those of the usual three nets marked if none is."""
    if any(line.use for line in rows):
        return rows
    usual = FITTED_NETS + FITTED_NETS_INT8
    return [
        msgspec.structs.replace(line, cells={**line.cells, "use": "scale"}) if line.text("model") in usual else line
        for line in rows
    ]


def measured_s(line: Line) -> float | None:
    """The shortest of the runs where it is given, else their mean."""
    value = line.number_or_none("latency_min_ms") or line.number_or_none("latency_avg_ms")
    return None if value is None else value / 1000


def _device(line: Line) -> tuple[str, ...]:
    """Rows that share their rates: the device, what of it is used, and the type of the numbers."""
    kind = "int8" if line.text("model").endswith("_int8") else "float"
    return (*(line.text(column) for column in ("device", "engine", "threads", "powersave")), kind)


def _times(rows: Sequence[Line]) -> dict[str, float]:
    """Times by net; of two rows of one net the first."""
    found: dict[str, float] = {}
    for line in rows:
        time_s = measured_s(line)
        if time_s is not None and line.text("model").removesuffix("_int8") in NETS:
            found.setdefault(line.text("model"), time_s)
    return found


def _of_device(rows: Sequence[Line], given: Times, peers: Sequence[Times]) -> list[Outcome]:
    rates = fit(given) if len(given) >= NETS_NEEDED else None
    elsewhere = {net: _mean(peers, net) for net in dict.fromkeys(line.text("model") for line in rows)}
    slower = [time_s / elsewhere[net] for net, time_s in given.items() if elsewhere[net]]
    found = []
    for line in rows:
        net, time_s = line.text("model"), measured_s(line)
        if time_s is None:
            why = "no latency is measured"
        elif net.removesuffix("_int8") not in NETS:
            why = f"nobody counted the net {net!r}"
        elif (line.whole_or_none("batch") or 1) > 1:
            why = "only batch 1 is described"
        elif rates is None:
            why = f"fewer than {NETS_NEEDED} nets of the device are marked to give its rates"
        else:
            why = ""
        found.append(
            Outcome(
                file=line.file, row=line.number, group=_group(line), unit="s", measured=time_s or 0.0,
                predicted=None if why or rates is None else rates.time_s(net), reason=why, use=line.use,
                beside=median(slower) * elsewhere[net] if slower and elsewhere[net] and not why else None,
                choice=f"{line.text('device')}|{net}",
                label=", ".join(line.text(column) for column in ("device", "model", "engine", "threads", "powersave")),
            )
        )  # fmt: skip
    return found


def _group(line: Line) -> str:
    kind = ", int8" if line.text("model").endswith("_int8") else ""
    engine = line.text("engine").split("(")[0].split(" ")[0]
    return f"{line.text('source') or line.text('source_ref').split('@')[0] or 'devices'}, {engine or 'engine'}{kind}"


def _mean(peers: Sequence[Times], net: str) -> float:
    """The geometric mean of that net's times; 0 where no peer has it."""
    logs = [math.log(times[net]) for times in peers if net in times]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0
