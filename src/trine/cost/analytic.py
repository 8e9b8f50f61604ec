"""Time of one operator from its FLOPs and bytes: the soft roofline.

    t = t0 + ((F / (P e))^p + (B / (W eb))^p)^(1/p)

F FLOPs, B bytes moved, P peak FLOP/s, W memory bytes/s; e and eb are the shares of the two peaks that are reached, p
is how sharp the corner between them is, t0 the launch.  After Williams, Waterman and Patterson, "Roofline" (2009), with
the corner smoothed.  e, eb, p and t0 were fitted on half of the fp16 matrix products measured by Vidur (Agrawal et al.,
2024; MIT licence) on A100, A40 and H100: mean error on the other half 6.2, 6.9 and 8.0 %.  Cliffs from tile and wave
sizes are left out.
"""

from typing import Any

import msgspec
import numpy as np

from trine.cluster.cluster import Engine
from trine.cost.profile import Profile
from trine.errors import BadInput

Array = np.ndarray[Any, Any]
UNCALIBRATED_COMPUTE, UNCALIBRATED_MEMORY, UNCALIBRATED_SHARPNESS = 0.75, 0.85, 1.8
"""Shares of the printed peaks for an engine that nobody measured, between the fits below: expect 30 to 45 % error."""

FITTED = {"a100": (0.747, 0.801, 1.77), "a40": (0.773, 0.785, 1.92), "h100": (0.751, 0.923, 1.80)}
"""(e, eb, p) by the first part of an engine's name."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the formula.  ``calibrated`` tells whether they were fitted on that engine."""

    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    compute_efficiency: float = UNCALIBRATED_COMPUTE
    memory_efficiency: float = UNCALIBRATED_MEMORY
    sharpness: float = UNCALIBRATED_SHARPNESS
    launch_s: float = 0.0
    calibrated: bool = False

    def time_s(self, num_flops: float, num_bytes: float) -> float:
        """Seconds for one operator of ``num_flops`` that moves ``num_bytes`` to and from memory."""
        if num_flops < 0 or num_bytes < 0:
            raise BadInput(
                f"An operator of {num_flops:g} FLOPs and {num_bytes:g} bytes was to be timed.",
                "Neither can be negative.",
            )
        compute = num_flops / (self.peak_flops_per_s * self.compute_efficiency)
        memory = num_bytes / (self.bandwidth_bytes_per_s * self.memory_efficiency)
        high, low = max(compute, memory), min(compute, memory)
        if high == 0:
            return self.launch_s
        # the larger term is taken out, so that no power over- or underflows
        corner: float = (1 + (low / high) ** self.sharpness) ** (1 / self.sharpness)
        return self.launch_s + high * corner

    def times_s(self, num_flops: Array, num_bytes: Array) -> Array:
        """The same for many operators at once."""
        compute = num_flops / (self.peak_flops_per_s * self.compute_efficiency)
        memory = num_bytes / (self.bandwidth_bytes_per_s * self.memory_efficiency)
        high = np.maximum(compute, memory)
        share = np.divide(np.minimum(compute, memory), high, out=np.zeros_like(high), where=high > 0)
        result: Array = self.launch_s + high * (1 + share**self.sharpness) ** (1 / self.sharpness)
        return result


def from_engine(engine: Engine, dtype: str, *, num_sharing: int = 1, shared_bandwidth: float | None = None) -> Roofline:
    """The roofline of an engine by its data sheet, with the fit of its family where there is one.

    ``num_sharing`` engines at work divide ``shared_bandwidth`` (bytes/s) among them.
    """
    fitted = FITTED.get(engine.name.split("-")[0])
    compute, memory, sharpness = fitted or (UNCALIBRATED_COMPUTE, UNCALIBRATED_MEMORY, UNCALIBRATED_SHARPNESS)
    bandwidth = engine.memory_bandwidth_bytes_per_s
    if shared_bandwidth is not None:
        bandwidth = min(bandwidth, shared_bandwidth / num_sharing)
    return Roofline(
        peak_flops_per_s=engine.peak(dtype),
        bandwidth_bytes_per_s=bandwidth,
        compute_efficiency=compute,
        memory_efficiency=memory,
        sharpness=sharpness,
        launch_s=engine.launch_s,
        calibrated=fitted is not None,
    )


def from_profile(profile: Profile, work: str, dtype: str, concurrency: int, *, backward: bool = False) -> Roofline:
    """The roofline of one of ``concurrency`` cores at work, from measured rates: e and eb are in the rates, so 1.

    ``work`` is "matmul", "conv" or "depthwise".  Raises UnknownName for a rate that was not measured.
    """
    launch = profile.launch(concurrency)
    return Roofline(
        peak_flops_per_s=profile.rate(work, dtype, concurrency),
        bandwidth_bytes_per_s=profile.rate("stream", "float32", concurrency),
        compute_efficiency=1.0,
        memory_efficiency=1.0,
        launch_s=launch.backward_s if backward else launch.forward_s,
        calibrated=True,
    )
