"""The one-second probe: four rates of this machine right now.

Measured before and after each row of a comparison, it tells whether the machine itself changed in between (other
users, a clock that fell), which would make the row worthless.
"""

import time
from functools import partial

import msgspec
import torch

from trine.measure.timing import time_concurrently
from trine.measure.work import KINDS, make_work


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one core while ``concurrency`` cores do the same, in float32."""

    concurrency: int
    matmul_flops_per_s: float
    conv_flops_per_s: float
    depthwise_flops_per_s: float
    stream_bytes_per_s: float

    def rates(self) -> dict[str, float]:
        """The four rates by kind of work."""
        values = (self.matmul_flops_per_s, self.conv_flops_per_s, self.depthwise_flops_per_s, self.stream_bytes_per_s)
        return dict(zip(KINDS, values, strict=True))

    def change(self, later: "Probe") -> float:
        """The largest relative change of a rate from this probe to a later one: 0.1 is ten per cent, up or down."""
        mine, other = self.rates(), later.rates()
        return max(abs(other[kind] / mine[kind] - 1) for kind in KINDS)


def probe(concurrency: int = 1, *, duration_s: float = 1.0) -> Probe:
    """Measure the four rates on ``concurrency`` cores at once, in about ``duration_s`` altogether."""
    matmul, conv, depthwise, stream = (
        measure_rate(kind, torch.float32, concurrency, max_s=duration_s / len(KINDS)) for kind in KINDS
    )
    return Probe(
        concurrency=concurrency,
        matmul_flops_per_s=matmul,
        conv_flops_per_s=conv,
        depthwise_flops_per_s=depthwise,
        stream_bytes_per_s=stream,
    )


def between(a: Probe, b: Probe) -> Probe:
    """The mean of two probes: of the machine in the time between them."""
    means = {name: (getattr(a, name) + getattr(b, name)) / 2 for name in a.__struct_fields__ if name != "concurrency"}
    return Probe(concurrency=a.concurrency, **means)


def measure_rate(kind: str, dtype: torch.dtype, concurrency: int, *, max_s: float) -> float:
    """FLOP/s (bytes/s for "stream") of one core while ``concurrency`` cores do that work at once."""
    works = [make_work(kind, dtype) for _ in range(concurrency)]
    time_s = time_concurrently([work.call for work in works], num_samples=1000, num_warmup=1, max_s=max_s)
    return works[0].amount / time_s


def disturbance(concurrency: int, *, duration_s: float = 0.3) -> float:
    """The share of ``concurrency`` cores' time that went to somebody else while all of them should have computed here:
    1 minus the threads' processor time by the clock's.  Above 0.1 a measurement is not worth keeping."""
    spent: list[tuple[float, float]] = []
    calls = [make_work("matmul", torch.float32).call for _ in range(concurrency)]

    def watched(rank: int) -> None:
        wall, processor = time.perf_counter(), time.thread_time()
        calls[rank]()
        spent.append((time.perf_counter() - wall, time.thread_time() - processor))

    time_concurrently([partial(watched, rank) for rank in range(concurrency)], num_samples=1000, max_s=duration_s)
    return max(0.0, 1 - sum(used for _, used in spent) / sum(wall for wall, _ in spent))
