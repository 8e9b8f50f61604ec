"""The share of each micro-batch in the loss of the whole batch.

A mean over samples weighs by rows, a mean over tokens by the tokens that count, a sum by one.  What kind of loss it is
is read from the end of the graph; token counts depend on labels only and are computed before the step.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from trine.errors import BadInput
from trine.graph.graph import Graph, Operator
from trine.lower.targets import run_operators

THROUGH = ("mul", "div", "add", "sub", "neg", "view", "_to_copy", "detach", "select", "sum", "mean")


def micro_batch_weights(
    graph_of: Callable[[int], Graph], rows: Sequence[tuple[int, int]], inputs: Mapping[str, Tensor],
    constants: Mapping[str, Tensor],
) -> tuple[float, ...]:  # fmt: skip
    """One weight for each micro-batch.

    ``inputs``: whole-batch tensors by graph name; ``constants``: the graph's constants.  BadInput where the loss is
    neither a sum nor a mean, or a composition of means over different counts.
    """
    if len(rows) == 1:
        return (1.0,)
    graphs = [graph_of(high - low) for low, high in rows]
    if graphs[0].loss is None:
        return (1.0,) * len(rows)
    by_size = {high - low: (graph, loss_kind(graph)) for graph, (low, high) in zip(graphs, rows, strict=True)}
    kind, counting = loss_kind(graphs[0])
    share = [(high - low) / (rows[-1][1] - rows[0][0]) for low, high in rows]
    if kind == "sum":
        return (1.0,) * len(rows)
    if kind != "mean" or any(found[0] != kind or len(found[1]) != len(counting) for _, found in by_size.values()):
        raise BadInput(
            f"The loss of {graphs[0].name} is neither a mean nor a sum: its micro-batches do not add up to it.",
            "Micro-batches need a loss that is.", "Leave --micro-batches out, or end the loss in a mean or a sum.",
        )  # fmt: skip
    for which, number in enumerate(counting):
        counts = []
        for low, high in rows:
            graph, (_, numbers) = by_size[high - low]
            cut = {n: _rows(v, graph.batch_dims.get(n, -1), low, high) for n, v in inputs.items()}
            counts.append(_count(graph, graph.operators[numbers[which]], {**cut, **constants}))
        shares = [c / sum(counts) for c in counts] if sum(counts) else share
        if len(counting) == 1 and _producer(graphs[0], graphs[0].loss) == "ratio":
            return tuple(shares)
        if any(abs(a - b) > 1e-12 for a, b in zip(shares, share, strict=True)):
            raise BadInput(
                f"The loss of {graphs[0].name} adds several means, one of which "
                f"({graphs[0].operators[number].module}) counts other than samples.",
                "Its micro-batches have no single weight.", "Leave --micro-batches out.",
            )  # fmt: skip
    return tuple(share)


def loss_kind(graph: Graph) -> tuple[str, list[int]]:
    """``"mean"``, ``"sum"`` or ``"other"``, and the numbers of the cross-entropies in it."""
    made = {name: i for i, op in enumerate(graph.operators) for name in op.outputs if name is not None}
    kinds, counting, todo, seen = set[str](), list[int](), [graph.loss], set[str]()
    while todo:
        name = todo.pop()
        if name is None or name in seen or name not in made:
            continue
        seen.add(name)
        op = graph.operators[made[name]]
        source = graph.operators[made[op.inputs[0]]] if op.inputs and op.inputs[0] in made else None
        if op.base == "ratio":
            kinds.add("mean")
            counting.append(made[op.inputs[0]])
        elif op.base == "mean" and len(graph.tensors[name].shape) == 0:
            kinds.add("mean")
        elif (op.base == "sum" and len(graph.tensors[name].shape) == 0) or (
            op.base == "select" and source is not None and source.base == "cross_entropy"
        ):
            kinds.add("sum")
        elif op.base in THROUGH:
            todo += [n for n in op.inputs if graph.tensors[n].is_floating]
        else:
            kinds.add("other")
    return (kinds.pop() if len(kinds) == 1 else "other"), counting


def _producer(graph: Graph, name: str) -> str:
    return next((op.base for op in graph.operators if name in op.outputs), "")


def _rows(value: Tensor, dim: int, low: int, high: int) -> Tensor:
    return value.narrow(dim, low, high - low) if dim >= 0 and value.dim() else value


def _count(graph: Graph, loss: Operator, known: dict[str, Tensor]) -> float:
    """How much weight the targets of a cross-entropy have together."""
    target = loss.args["target"][1:]
    needed, wanted = [], {target}
    for op in reversed(graph.operators):
        if not wanted.isdisjoint(n for n in op.outputs if n is not None):
            needed.append(op)
            wanted.update(op.inputs)
    values = dict(known)
    with torch.no_grad():
        run_operators(tuple(reversed(needed)), values)
    labels = values[target]
    if labels.is_floating_point():
        return float(labels.shape[0])
    keep = labels != loss.args.get("ignore_index", -100)
    weight = loss.args.get("weight")
    if weight is None:
        return float(keep.sum())
    return float(values[weight[1:]][labels[keep]].sum())
