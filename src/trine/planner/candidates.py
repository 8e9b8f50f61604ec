"""What the search looks at: data, model and tensor parallelism on a few engines, in every combination of degrees.

A plan has at most one tensor axis, with each cut in turn, equal parts, stages of equal work, 1, 2, 4 or 8 micro-batches
where it has stages, and 1F1B.  By hand there are also: two tensor axes, unequal shares, GPipe, local batch norm.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from trine.cluster.cluster import Cluster
from trine.cluster.room import shortage
from trine.errors import TrineError
from trine.graph.graph import Graph
from trine.plan.build import build, cut_sizes
from trine.plan.plan import Plan
from trine.planner.predict import Prediction
from trine.scenario.scenario import Scenario

TILED = ("height", "width", "sequence", "length", "heads", "channel")
GraphOf = Callable[[int], Graph]  # micro-batches → graph of the largest one


def degrees(num_engines: int) -> Iterator[tuple[int, int, int]]:
    """(data, stages, tensor) whose product is at most the number of engines, more than one engine used."""
    for data in range(1, num_engines + 1):
        for stages in range(1, num_engines // data + 1):
            for tensor in range(1, num_engines // (data * stages) + 1):
                if data * stages * tensor > 1:
                    yield data, stages, tensor


def candidates(graph_of: GraphOf, scenario: Scenario, num_engines: int) -> tuple[dict[str, Plan], dict[str, str]]:
    """Plans that can be compiled, by combination, and for each combination that cannot what it died of."""
    cuts = searched(cut_sizes(graph_of(1)), TILED)
    plans: dict[str, Plan] = {}
    died: dict[str, str] = {}
    for data, stages, tensor in degrees(num_engines):
        for cut in cuts if tensor > 1 else [""]:
            for m in micro_batches(scenario, stages):
                name = f"data {data} × stages {stages} × tensor {tensor} {cut}, {m} micro-batches"
                try:
                    plans[name] = build(
                        graph_of(m), data=data, stages=stages, tensor=(tensor,), cuts=(cut,) if cut else (),
                        micro_batches=m, batch=scenario.batch,
                    )  # fmt: skip
                except TrineError as error:
                    died[name] = str(error)
    return plans, died


def searched(sizes: Mapping[str, int], cuts: Sequence[str]) -> list[str]:
    """Those of the cuts that a model has; channels only where there are no heads."""
    return [cut for cut in cuts if cut in sizes and not (cut == "channel" and "heads" in sizes)]


def with_room(
    plans: Mapping[str, Plan], predicted: Mapping[str, Prediction], cluster: Cluster, died: dict[str, str]
) -> list[Plan]:
    """The plans that fit in the memory of the engines, by predictions under their ``key``; the rest dies of it."""
    kept = []
    for name, plan in plans.items():
        short = shortage(cluster, predicted[plan.key].needs_bytes)
        if short is None:
            kept.append(plan)
        else:
            died[name] = f"Too little memory: {short}."
    return kept


def micro_batches(scenario: Scenario, stages: int) -> tuple[int, ...]:
    """In how many pieces a batch may stream: one without stages."""
    if stages == 1:
        return (1,)
    return tuple(m for m in (1, 2, 4, 8) if m <= scenario.batch)


def is_pure(plan: Plan, kind: str) -> bool:
    """Whether a plan is data, model or tensor parallelism alone."""
    names = {axis.name.rstrip("0123456789") for axis in plan.axes}
    if kind == "model":
        return plan.num_stages > 1 and not names
    return plan.num_stages == 1 and names == {kind}
