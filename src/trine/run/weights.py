"""The share of each micro-batch in the loss of the whole batch.

A mean over samples weighs by rows, a mean over tokens by the tokens that count, a sum by one.  What kind of loss it is
is read from the end of the graph (:mod:`trine.run.loss_form`); counts depend on inputs and labels only and are computed
before the step.
"""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from trine.errors import BadInput
from trine.graph.graph import Graph, Operator
from trine.run.loss_form import Term, loss_terms, value_of


class Weighing:
    """How the micro-batches of a batch weigh: ``rows`` of it are ``(low, high)`` of each.

    graph_of: rows → the graph of so many; constants: the graph's constants by name.  Raises BadInput where the loss is
    neither a sum nor a mean.
    """

    def __init__(
        self, graph_of: Callable[[int], Graph], rows: Sequence[tuple[int, int]], constants: Mapping[str, Tensor]
    ) -> None:
        self.rows, self.constants = rows, constants
        self.graphs = {high - low: graph_of(high - low) for low, high in rows}
        self.terms: tuple[Term, ...] = ()
        first, total = next(iter(self.graphs.values())), rows[-1][1] - rows[0][0]
        if len(rows) == 1 or first.loss is None:
            return
        terms = loss_terms(graph_of(total), self.graphs.items(), total, constants) or ()
        kinds = {term.kind for term in terms}
        if not kinds & {"sum", "mean", "count"} or ("sum" in kinds and len(kinds) > 1):
            raise BadInput(
                f"The loss of {first.name} is neither a mean nor a sum: its micro-batches do not add up to it.",
                "Micro-batches need a loss that is.", "Leave --micro-batches out, or end the loss in a mean or a sum.",
            )  # fmt: skip
        self.terms = terms

    def weights(self, inputs: Mapping[str, Tensor]) -> tuple[float, ...]:
        """One weight for each micro-batch of these whole-batch tensors (by graph name).  Raises BadInput for a
        composition of means over different counts."""
        kinds = {term.kind for term in self.terms}
        if not kinds or kinds == {"sum"}:
            return (1.0,) * len(self.rows)
        total = self.rows[-1][1] - self.rows[0][0]
        share = tuple((high - low) / total for low, high in self.rows)
        counted = {t.over: self.shares(t.over, inputs) or share for t in self.terms if t.kind == "count"}
        if kinds == {"count"} and len(set(counted.values())) == 1:
            return next(iter(counted.values()))
        for over, shares in counted.items():
            if any(abs(a - b) > 1e-12 for a, b in zip(shares, share, strict=True)):
                graph = next(iter(self.graphs.values()))
                raise BadInput(
                    f"The loss of {graph.name} adds several means, one of which ({_module(graph, over)}) counts other "
                    "than samples.", "Its micro-batches have no single weight.", "Leave --micro-batches out.",
                )  # fmt: skip
        return share

    def shares(self, over: str, inputs: Mapping[str, Tensor]) -> tuple[float, ...]:
        """The share of each micro-batch in what is counted by a tensor; none if nothing counts."""
        counts = []
        for low, high in self.rows:
            graph = self.graphs[high - low]
            cut = {n: _rows(v, graph.batch_dims.get(n, -1), low, high) for n, v in inputs.items()}
            known, maker = {**cut, **self.constants}, next(op for op in graph.operators if over in op.outputs)
            counted = maker.base == "cross_entropy"
            count = _count(graph, maker, known) if counted else float(value_of(graph, over, known).double().sum())
            counts.append(count)
        return tuple(count / sum(counts) for count in counts) if sum(counts) else ()


def _module(graph: Graph, over: str) -> str:
    return next((op.module or op.name for op in graph.operators if over in op.outputs), over)


def _rows(value: Tensor, dim: int, low: int, high: int) -> Tensor:
    return value.narrow(dim, low, high - low) if dim >= 0 and value.dim() else value


def _count(graph: Graph, loss: Operator, known: Mapping[str, Tensor]) -> float:
    """How much weight the targets of a cross-entropy have together."""
    labels = value_of(graph, loss.args["target"][1:], known)
    if labels.is_floating_point():
        return float(labels.shape[0])
    keep = labels != loss.args.get("ignore_index", -100)
    weight = loss.args.get("weight")
    if weight is None:
        return float(keep.sum())
    return float(value_of(graph, weight[1:], known)[labels[keep]].sum())
