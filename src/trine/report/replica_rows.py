"""Rows of training tables without a transformer: image nets on replicas, scaled from their one-GPU rows.

    t(n) = t(1) + all-reduce of the gradients (4 bytes a parameter), not hidden behind the backward pass

as TensorFlow 1 did it.  What is predicted is the scaling; the one-GPU row gives the computation and is not scored.
Beside it stands perfect scaling: t(n) = t(1).
"""

import re
from collections.abc import Sequence

from trine.cluster.cluster import Link
from trine.cost.links import NETWORK_SHARE, UNMEASURED, Wires
from trine.cost.nets import PARAMS
from trine.report.score import Outcome
from trine.report.tables import Line
from trine.report.training_rows import Unpredictable, attempt, measured_s, need

SINGLE = 4
"""Bytes of a gradient in float32."""

HYBRID_CUBE_SHARE = ((2, 0.15), (4, 0.57), (8, 0.89))
"""Share of the NVLinks of an engine that a ring of so many reaches on a DGX-1's hybrid cube mesh: bus bandwidth of
22.5, 85 and 134 GB/s of 150 (nccl-tests all-reduce of 1 GB on V100; vTrain, MIT)."""

P100_NVLINK_BYTES_PER_S = 80e9
"""One direction of the four links: NVIDIA Tesla P100 data sheet, 160 GB/s both ways."""
K80_PCIE_BYTES_PER_S = 7.9e9
"""Half of PCIe 3.0 x16, which the two chips of a board share: NVIDIA Tesla K80 board specification; PCI-SIG."""
P2_ETHERNET_BYTES_PER_S = 1.25e9
"""10 Gbit/s for the node: Amazon EC2 instance types, p2.8xlarge."""
COMBINED = ("replicated", "distributed_replicated")
"""The ways of tf_cnn_benchmarks to combine gradients that are an all-reduce."""


def replica_outcomes(lines: Sequence[Line]) -> list[Outcome]:
    """Each row predicted, or the reason why not."""
    alone: dict[str, float] = {}
    for line in lines:
        if line.whole_or_none("gpus") == 1:
            alone.setdefault(_same(line), _measured(line) or 0.0)
    return [_outcome(line, alone.get(_same(line))) for line in lines]


def _outcome(line: Line, alone_s: float | None) -> Outcome:
    measured = _measured(line)
    missing = "nothing is measured in seconds or samples a second"
    predicted, why = attempt(measured, missing, lambda: _step_s(line, alone_s))
    update = _update(line)
    return Outcome(
        file=line.file, row=line.number, unit="s", measured=measured or 0.0, predicted=predicted, reason=why,
        group=", ".join([line.text("source").split(" (")[0], line.text("hardware").split(" (")[0], update]),
        use=line.use or ("scale" if need(line, "gpus") == 1 else ""), beside=alone_s if predicted else None,
        label=f"{line.text('model')}, {line.text('gpus')} GPUs, {line.text('micro_batch')} images each",
    )  # fmt: skip


def _step_s(line: Line, alone_s: float | None) -> float:
    gpus, name, update = need(line, "gpus"), line.text("model"), _update(line)
    if update not in COMBINED:
        raise Unpredictable(f"variable_update={update or 'unknown'} is no all-reduce")
    if name not in PARAMS:
        raise Unpredictable(f"nobody counted the net {name!r}")
    if not alone_s:
        raise Unpredictable("no one-GPU row of the same net, batch, data and way to combine gradients")
    node = line.whole_or_none("gpus_per_node") or gpus
    within, across = min(gpus, node), -(-gpus // node)
    return alone_s + _wires(line.text("hardware"), within, node).all_reduce_s(SINGLE * PARAMS[name], within, across)


def _wires(hardware: str, within: int, node: int) -> Wires:
    """Links of the engines of these rows, which no preset has."""
    adapter = Link(latency_s=0.0, bandwidth_bytes_per_s=P2_ETHERNET_BYTES_PER_S * NETWORK_SHARE / node)
    if "P100" in hardware:
        share = next(share for size, share in HYBRID_CUBE_SHARE if within <= size or size == 8)
        inside = Link(latency_s=0.0, bandwidth_bytes_per_s=P100_NVLINK_BYTES_PER_S * share)
    elif "K80" in hardware:
        inside = Link(latency_s=0.0, bandwidth_bytes_per_s=K80_PCIE_BYTES_PER_S)
    else:
        raise Unpredictable(f"the links of {hardware!r} are not known")
    return Wires(node_size=node, inside=inside, adapter=adapter, reach=UNMEASURED)


def _measured(line: Line) -> float | None:
    try:
        return measured_s(line)
    except Unpredictable:
        return None


def _update(line: Line) -> str:
    found = re.search(r"variable_update=(\w+)", line.text("notes"))
    return found[1] if found else ""


def _same(line: Line) -> str:
    """Rows that differ in the number of GPUs only."""
    return "|".join(line.text(column) for column in ("source_ref", "hardware", "model", "micro_batch", "notes"))
