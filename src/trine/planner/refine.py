"""Refinements of a plan for the engines at hand: shares by their speed, stages by time rather than by FLOPs."""

from collections.abc import Sequence

from msgspec.structs import replace

from trine.plan.plan import Plan
from trine.planner.estimate import Degrees, Estimator

DIGITS = 3  # of a share


def with_shares(plan: Plan, speeds: Sequence[float]) -> Plan:
    """Each axis cut by the speed of the slowest engine at each of its coordinates.  ``speeds``: of engine i."""
    axes = []
    for number, axis in enumerate(plan.axes):
        slowest = [
            min(
                speeds[plan.rank(stage, coords)]
                for stage in range(plan.num_stages) for coords in plan.coordinates() if coords[number] == c
            )
            for c in range(axis.size)
        ]  # fmt: skip
        shares = tuple(round(speed / max(slowest), DIGITS) for speed in slowest)
        axes.append(replace(axis, shares=shares) if len(set(shares)) > 1 else axis)
    return replace(plan, axes=tuple(axes))


def with_stages(plan: Plan, estimator: Estimator, batch: int) -> Plan:
    """Stages that take equal time, by the estimates of an outline with the plan's tiles; the plan as it was if they do
    not fit in memory."""
    if plan.num_stages == 1:
        return plan
    data = next((axis.size for axis in plan.axes if axis.cut == "batch"), 1)
    rows = -(-batch // (data * plan.micro_batches))
    degrees = Degrees(data, plan.num_stages, rows, plan.micro_batches, bool(plan.stages_at))
    found = estimator.estimate(degrees)
    if found is None:
        return plan
    return replace(plan, stage_starts=tuple(estimator.outline.starts[unit] for unit in found.starts))
