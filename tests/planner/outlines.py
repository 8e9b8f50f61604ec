"""Outlines and clusters made by hand, for the laws of estimates and of the search."""

from random import Random

import numpy as np

from trine.cluster.cluster import Cluster, Engine, Link, Tier
from trine.cost.segments import AnalyticCosts
from trine.plan.plan import Axis
from trine.planner.fleet import Fleet
from trine.planner.outline import Amount, Outline, Talk

GB = 10**9


def drawn(random: Random, units: int, axis: Axis | None = None) -> Outline:
    """A chain of units with random work, that exchanges a little where tensors are cut."""

    def column(low: float, high: float) -> np.ndarray:
        return np.array([random.uniform(low, high) for _ in range(units)])

    parts = axis.size if axis is not None else 1
    none = np.zeros(units)
    weights = column(0, 4e6)
    talks = [
        Talk(unit, False, "all_reduce", (random.uniform(0, 1e6), 0.0), (1e5, 0.0), True)
        for unit in range(units) if axis is not None
    ]  # fmt: skip
    return Outline(
        axis=axis, starts=tuple(f"op{i}" for i in range(units)), classes=(("matmul", "float32"),),
        class_of=np.zeros(units, np.int64), active=np.ones(units, bool), flops=Amount(column(1e8, 1e10) / parts, none),
        traffic=Amount(column(1e5, 1e7) / parts, weights), kept=Amount(column(1e5, 1e6), none),
        crossing=Amount(column(1e4, 1e6), none), resting=weights / parts, trained=weights / parts, talks=tuple(talks),
        training=True,
    )  # fmt: skip


def cluster(
    engines: int, *, inner: int = 1, inside: float = 100 * GB, outside: float = 100 * GB, memory: int = 40 * GB,
    speeds: tuple[float, ...] = (1.0,), launch: float = 1e-6,
) -> Cluster:  # fmt: skip
    """Engines in groups of ``inner``, with the bandwidth inside and between groups; of these speeds in turn."""
    kinds = [
        Engine(
            name=f"e{speed:g}", kind="gpu", peak_flops_per_s={"float32": 1e13 * speed}, memory_bytes=memory,
            memory_bandwidth_bytes_per_s=1000 * GB * speed, launch_s=launch,
        )
        for speed in speeds
    ]  # fmt: skip
    tiers = []
    if 1 < inner < engines:
        tiers.append(Tier(name="host", size=inner, link=Link(latency_s=1e-6, bandwidth_bytes_per_s=inside)))
    if engines > 1:
        tiers.append(Tier(name="all", size=engines, link=Link(latency_s=1e-6, bandwidth_bytes_per_s=outside)))
    return Cluster(name="drawn", engines=tuple(kinds[i % len(kinds)] for i in range(engines)), tiers=tuple(tiers))


def fleet(of: Cluster) -> Fleet:
    """With what its data sheet says."""
    costs = AnalyticCosts(of)
    return Fleet(of, lambda engine, kind, dtype, backward: costs.roofline(engine, dtype))
