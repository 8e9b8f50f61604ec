"""A plan held against a module, and carried over to the module's other graphs.

A plan speaks of one graph: training or evaluation, with or without a loss, at one size of batch.  Operators have other
names in the others, so a stage start is found again by its module and its place in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from trine.capture.export import capture
from trine.capture.model import Model
from trine.errors import CannotCut, PlanMismatch
from trine.graph.graph import Graph
from trine.plan.build import changes, check, same_batch
from trine.plan.plan import Plan
from trine.program.compile import batches

ALIKE = {"batch_norm_eval": "batch_norm"}  # one operator of the model, by mode


@dataclass(frozen=True)
class Fit:
    """A plan and the graph that it speaks of."""

    plan: Plan
    graph: Graph

    def on(self, graph: Graph) -> Plan:
        """The plan for another graph of the module, the whole batch at once.  A batch may be smaller than its axis:
        some engines are idle then.  Raises CannotCut where another dimension is too small."""
        starts = carried(self.plan.stage_starts, self.graph, graph)
        plan = replace(
            self.plan, fingerprint="", input_shapes={}, batch=0, stage_starts=starts, micro_batches=1,
            recomputed_halos=carried_runs(self.plan.recomputed_halos, self.graph, graph),
        )  # fmt: skip
        check(replace(plan, axes=tuple(axis for axis in plan.axes if axis.cut != "batch")), graph)
        return plan


def fit(plan: Plan, model: Model, *, with_loss: bool) -> Fit:
    """Find the graph that a plan was made for, among those of a model with its example inputs.

    Without the loss a plan that was made with one is held against the model's own inputs only.  Raises PlanMismatch.
    """
    batch = model.inputs.batch
    same_batch(plan, batch)
    rows = batches(batch, min(plan.micro_batches, batch))[0][1]
    ways = [(True, True)] if with_loss else []
    ways += [(mode, False) for mode in (model.module.training, not model.module.training)]
    graphs = []
    for training, loss in ways:
        graphs.append(capture(model, training=training, with_loss=loss, batch=rows).graph)
        if plan.fingerprint in ("", graphs[-1].fingerprint()):
            check(plan, graphs[-1], batch)
            return Fit(plan, graphs[-1])
    trained = next(graph for graph in graphs if graph.training)
    shapes = {name: trained.tensors[name].shape for name in trained.inputs}
    known = {name: plan.input_shapes.get(name) for name in shapes}
    if with_loss or known != shapes or len(plan.input_shapes) == len(shapes):
        raise PlanMismatch(plan=plan.describe(), changed=changes(plan, graphs[0]))
    plan = replace(plan, fingerprint="")
    check(plan, trained, batch)
    return Fit(plan, trained)


def carried(starts: Sequence[str], old: Graph, new: Graph) -> tuple[str, ...]:
    """Where stages start in another graph of the same module."""
    names = [op.name for op in old.operators]
    places = {key: number for number, key in enumerate(_keys(new))}
    keys, result, last = _keys(old), list[str](), 0
    for start in starts:
        after = keys[names.index(start) :]
        last = max(last + 1, next((places[key] for key in after if key in places), len(places)))
        if last >= len(new.operators):
            raise CannotCut(axis="stages", degree=len(starts) + 1, dim="operators", size=len(new.operators))
        result.append(new.operators[last].name)
    return tuple(result)


def carried_runs(runs: Sequence[tuple[str, str]], old: Graph, new: Graph) -> tuple[tuple[str, str], ...]:
    """Runs of operators in another graph of the same module: of each, what is there of it."""
    names, keys = [op.name for op in old.operators], _keys(old)
    there = {key: op.name for key, op in zip(_keys(new), new.operators, strict=True)}
    result = []
    for first, last in runs:
        known = [there[key] for key in keys[names.index(first) : names.index(last) + 1] if key in there]
        if known:
            result.append((known[0], known[-1]))
    return tuple(result)


def _keys(graph: Graph) -> list[tuple[str, str, int]]:
    """Module, operator and how often the module had it before."""
    counts: dict[tuple[str, str], int] = {}
    result = []
    for op in graph.operators:
        key = (op.module, ALIKE.get(op.base, op.base))
        counts[key] = counts.get(key, 0) + 1
        result.append((*key, counts[key]))
    return result
