"""Where a plan's axes lie on the tiers of a cluster, and at which ratio of links the best plan lies otherwise."""

from collections.abc import Callable
from dataclasses import dataclass

from trine.plan.plan import Plan

STEPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # times that the outer link is slower than the inner one
HALVINGS = 5


@dataclass(frozen=True)
class Crossover:
    """Below ``ratio`` times slower outer links the plan ``below`` is best, above it ``above``."""

    ratio: float
    below: Plan
    above: Plan


def outside(plan: Plan, group_size: int) -> tuple[str, ...]:
    """The axes, stages among them, whose engines lie in several groups of so many neighbours."""
    first = (0,) * len(plan.axes)
    lines = {axis.name: plan.group(0, first, number) for number, axis in enumerate(plan.axes)}
    lines["stages"] = tuple(plan.rank(stage, first) for stage in range(plan.num_stages))
    return tuple(name for name, ranks in lines.items() if len({rank // group_size for rank in ranks}) > 1)


def crossovers(best: Callable[[float], Plan], group_size: int) -> list[Crossover]:
    """Where other axes go outside.  ``best``: the best plan where the outer link is so many times slower."""
    plans = [best(ratio) for ratio in STEPS]
    result = []
    for low, high, below, above in zip(STEPS, STEPS[1:], plans, plans[1:], strict=False):
        if outside(below, group_size) == outside(above, group_size):
            continue
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            plan = best(middle)
            if outside(plan, group_size) == outside(below, group_size):
                low, below = middle, plan
            else:
                high, above = middle, plan
        result.append(Crossover((low * high) ** 0.5, below, above))
    return result
