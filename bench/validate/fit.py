"""Fit the constants that `trine validate` does not score, each on rows whose column ``use`` says ``constants``.

    python -m bench.validate.fit

Robust least squares: what DeepSpeed's host needs to launch, on 360 rows of vTrain's table; what its ZeRO-3 of 2021
reached on the network, on three rows of Narayanan et al.; what links reach, on vTrain's all-reduces; and what an H100
keeps under load, on the rows of llm-foundry that are marked ``scale``.  Each is printed beside what stands in
``cost/stacks.py`` and ``cost/links.py``.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import bisect, least_squares

from trine.cluster.presets import preset
from trine.cost.links import REACHED, wires
from trine.cost.stacks import DEEPSPEED_FLOOR, DEEPSPEED_GATHER_SHARE, SUSTAINED, Floor, Stack
from trine.cost.step import machine, step
from trine.report.tables import Line, read_table
from trine.report.training_rows import case, measured_s, preset_of

HERE = Path(__file__).parent
Found = dict[str, tuple[float, float]]
"""By name: as fitted, and as it stands in the code."""


def marked(name: str) -> list[Line]:
    """The rows of a table that are there to give constants."""
    return [line for line in read_table(HERE / name).lines if line.use == "constants"]


def fitted(start: list[float], residuals: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The values, from ``start``, none negative, with the smallest residuals; outliers count less."""
    first = np.array(start)
    found = least_squares(
        lambda scale: residuals(np.abs(scale) * first), np.ones(len(start)), loss="soft_l1", f_scale=0.05
    )
    return np.abs(found.x) * first


def logs(lines: list[Line], change: Callable[[Stack], Stack]) -> np.ndarray:
    """Logarithms of predicted over measured step times, with another stack."""
    found = []
    for line in lines:
        known, links = case(line), preset_of(line.text("hardware"))
        on = machine(links.engine, wires(links), change(known.machine.stack))
        found.append(step(known.model, known.split, on).time_s / measured_s(line))
    return np.log(np.array(found))


def floor() -> Found:
    """DeepSpeed's launches."""
    lines, names = marked("train_vtrain_singlenode_a100.csv"), Floor.__struct_fields__

    def residuals(values: np.ndarray) -> np.ndarray:
        said = Floor(**dict(zip(names, values.tolist(), strict=True)))
        return logs(lines, lambda stack: msgspec.structs.replace(stack, floor=said))

    found = fitted([1e-3, 1e-3, 5e-5, 3e-3], residuals)
    return dict(zip(names, zip(found, msgspec.structs.astuple(DEEPSPEED_FLOOR), strict=True), strict=True))


def gathers() -> Found:
    """DeepSpeed's share of the network in ZeRO-3."""
    lines = marked("train_megatron_a100_v100_papers.csv")

    def residuals(values: np.ndarray) -> np.ndarray:
        return logs(lines, lambda stack: msgspec.structs.replace(stack, network_share=float(values[0])))

    return {"network_share": (fitted([0.1], residuals)[0], DEEPSPEED_GATHER_SHARE)}


def sustained() -> Found:
    """What an H100 keeps under load, beside an A100: equal medians of measured over predicted, by bisection."""
    lines = [line for line in read_table(HERE / "train_llmfoundry_mpt_a100_h100.csv").lines if line.use == "scale"]

    def slower(hardware: str, share: float) -> float:
        found = []
        for line in (line for line in lines if line.text("hardware") == hardware):
            known, joined = case(line), preset_of(hardware)
            dtype = "float8" if known.machine.casts else "bfloat16"
            on = machine(joined.engine, wires(joined), known.machine.stack, dtype=dtype, sustained=share)
            found.append(measured_s(line) / step(known.model, known.split, on).time_s)
        return float(np.median(found))

    target = slower("a100_80gb", 1.0)
    return {"sustained h100": (bisect(lambda share: slower("h100_80gb", share) - target, 0.3, 1.0), SUSTAINED["h100"])}


def links(name: str, ranks: tuple[str, ...], fields: tuple[str, ...]) -> Found:
    """These fields of what a family's links reach, on the all-reduces over so many ranks."""
    family = name.split("-")[0]
    now, joined = REACHED[family], wires(preset(name))
    lines = [line for line in marked("collectives_measured.csv") if line.text("hardware").startswith(family.upper())]
    lines = [line for line in lines if line.text("ranks") in ranks]

    def residuals(values: np.ndarray) -> np.ndarray:
        said = msgspec.structs.replace(now, **dict(zip(fields, values.tolist(), strict=True)))
        known = msgspec.structs.replace(joined, reach=said)
        times = [known.all_reduce_s(int(line.text("bytes")), int(line.text("ranks"))) for line in lines]
        return np.array(times) * 1e6 / np.array([float(line.text("time_us")) for line in lines]) - 1

    stands = [getattr(now, field) for field in fields]
    return {f"{name} {field}": both for field, *both in zip(fields, fitted(stands, residuals), stands, strict=True)}


def every() -> Found:
    """All of them."""
    a100 = links("a100-80gb", tuple("2345678"), ("start_s", "step_s", "copy_bytes_per_s", "share"))
    v100 = links("v100-32gb", ("8",), ("start_s", "share"))
    return floor() | gathers() | sustained() | a100 | v100


if __name__ == "__main__":
    for what, (value, stands_in_code) in every().items():
        print(f"{what}: {value:.3g} (in the code: {stands_in_code:.3g})")
