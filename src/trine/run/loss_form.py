"""What a loss is of its rows: a sum, a mean, or a sum over a count of them, so that micro-batches add up to it.

Read from the graph of the whole batch.  Where its placement over a batch axis adds pieces up, the rows end; from there
to the loss only what is linear is followed, with its factors.  A factor may hold the size of the batch (a sum divided
by ``len(x)``), which graphs of other sizes tell.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Literal

import torch
from torch import Tensor

from trine.graph.graph import Graph, Operator, is_ref
from trine.lower.targets import run_operators
from trine.plan.layout import PARTIAL, Split
from trine.plan.plan import Axis, Plan
from trine.program.place import place

Kind = Literal["sum", "mean", "count", "fixed"]
SUMS = ("sum", "matmul", "mm", "bmm", "mv", "dot", "einsum", "linear")  # what adds rows up where it is cut by them
SAME = (
    "neg",
    "view",
    "_to_copy",
    "to",
    "alias",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "detach",
    "sum",
    "mean",
)


@dataclass(frozen=True)
class Term:
    """One addend of the loss.  sum, mean: over rows; count: a sum divided by another that is known from the inputs;
    fixed: the same whatever the rows are.  ``scale``: its factor; ``over``: the tensor that counts."""

    kind: Kind
    scale: float = 1.0
    over: str = ""
    learns: bool = False  # it depends on a parameter


Form = tuple[Term, ...] | None  # None: not linear in what the rows say


def loss_terms(
    graph: Graph, others: Iterable[tuple[int, Graph]], rows: int, constants: Mapping[str, Tensor]
) -> tuple[Term, ...] | None:
    """The addends of the loss of a graph over ``rows``, judged by graphs over other numbers of rows; None where it is
    not made of such."""
    roles = _roles(graph)
    whole = _Walk(graph, roles, constants).run()
    if whole is None:
        return None
    known = [(rows, whole)]
    for size, other in others:
        found = _Walk(other, roles, constants).run()
        if found is None or [t.kind for t in found] != [t.kind for t in whole]:
            return None
        known.append((size, found))
    result = []
    for number in range(len(whole)):
        term = _settled([(size, form[number]) for size, form in known])
        if term is None:
            return None
        result.append(term)
    return tuple(result)


def value_of(graph: Graph, name: str, known: Mapping[str, Tensor]) -> Tensor:
    """The value of a tensor that depends on inputs and constants only."""
    needed, wanted = [], {name}
    for op in reversed(graph.operators):
        if not wanted.isdisjoint(n for n in op.outputs if n is not None):
            needed.append(op)
            wanted.update(op.inputs)
    values = dict(known)
    with torch.no_grad():
        run_operators(tuple(reversed(needed)), values)
    return values[name]


def _settled(known: Sequence[tuple[int, Term]]) -> Term | None:
    """A term with its factor free of the size of the batch."""
    size, first = known[0]

    def same(scaled: Callable[[int, Term], float]) -> bool:
        return all(isclose(scaled(s, t), scaled(size, first), rel_tol=1e-6) for s, t in known)

    if same(lambda s, t: t.scale):
        return first
    if first.kind == "sum" and same(lambda s, t: t.scale * s):
        return replace(first, kind="mean", scale=first.scale * size)
    if first.kind == "mean" and same(lambda s, t: t.scale / s):
        return replace(first, kind="sum", scale=first.scale / size)
    return None


@dataclass(frozen=True)
class _Roles:
    """Tensors by name: those that have rows, those in which rows were added up."""

    rows: frozenset[str]
    adding: frozenset[str]


def _roles(graph: Graph) -> _Roles:
    placement = place(graph, Plan(axes=(Axis("batch", 2, "batch"),)))
    rows, adding = set[str](), set[str]()
    for placed in placement.placed:
        for name, layout in zip(placed.op.outputs, placed.layouts, strict=True):
            if name is not None and layout[0] == PARTIAL:
                adding.add(name)
            elif name is not None and isinstance(layout[0], Split):
                rows.add(name)
    return _Roles(frozenset(rows), frozenset(adding))


class _Walk:
    """From the rows to the loss of one graph.  ``forms``: of what depends on rows and is made of all of them;
    ``shared``: what depends on inputs without rows, the same for every micro-batch."""

    def __init__(self, graph: Graph, roles: _Roles, constants: Mapping[str, Tensor]) -> None:
        self.graph, self.roles, self.constants = graph, roles, constants
        self.rowed = {t.name for t in graph.by_kind("input") if graph.batch_dims.get(t.name, -1) >= 0}
        self.shared = {t.name for t in graph.by_kind("input")} - self.rowed
        self.learned = {t.name for t in graph.tensors.values() if t.kind in ("parameter", "buffer")}
        self.forms: dict[str, Form] = {}
        self.states: set[str] = set()  # (sum of losses, sum of weights) of a cross-entropy

    def run(self) -> Form:
        for op in self.graph.operators:
            outputs = [name for name in op.outputs if name is not None]
            if not self.learned.isdisjoint(op.inputs):
                self.learned.update(outputs)
            if not self.shared.isdisjoint(op.inputs):
                self.shared.update(outputs)
            if self.rowed.isdisjoint(op.inputs) and self.forms.keys().isdisjoint(op.inputs):
                continue
            for name in outputs:
                if name in self.roles.rows:
                    self.rowed.add(name)
                else:
                    self.forms[name] = self.form(op, name)
        loss = self.graph.loss
        assert loss is not None
        return self.forms.get(loss, (Term("fixed"),)) if loss not in self.rowed else None

    def form(self, op: Operator, name: str) -> Form:
        """Of a tensor that an operator makes from rows or from forms."""
        learns = not self.learned.isdisjoint(op.inputs)
        if name in self.roles.adding:
            if op.base == "cross_entropy":
                self.states.add(name)
            if op.base == "mean":
                return (Term("mean", learns=learns),)
            return (Term("sum", learns=learns),) if op.base in (*SUMS, "cross_entropy") else None
        if not self.rowed.isdisjoint(op.inputs):
            return None  # it needs the rows of all, and is no sum
        return self.linear(op, learns)

    def linear(self, op: Operator, learns: bool) -> Form:
        """Of forms and what is the same for all rows."""
        own = [self.forms[name] for name in op.inputs if name in self.forms]
        if any(form is None for form in own):
            return None
        first = own[0]
        assert first is not None
        if op.base == "ratio":
            return (Term("count", over=op.inputs[0], learns=learns),)
        if op.base == "select" and op.inputs[0] in self.states:
            return (Term("sum", learns=learns and op.args["index"] == 0),)
        if op.base in SAME or op.base == "select":
            return tuple(replace(term, scale=-term.scale) for term in first) if op.base == "neg" else first
        left, right = op.args.get("self"), op.args.get("other")
        if op.base in ("mul", "div") and not op.args.get("rounding_mode"):
            if op.base == "div" and self.is_form(right):
                return self.quotient(left, right)
            other = right if self.is_form(left) else left
            factor = None if len(own) > 1 else self.factor(other)
            return None if factor is None else _scaled(first, factor if op.base == "mul" else 1 / factor)
        if op.base in ("add", "sub"):
            sign = (1 if op.base == "add" else -1) * float(op.args.get("alpha", 1))
            parts = [self.addend(left), _scaled(self.addend(right), sign)]
            return None if None in parts else (*(parts[0] or ()), *(parts[1] or ()))
        return None

    def quotient(self, left: object, right: object) -> Form:
        """A sum divided by one that is known from the inputs."""
        above, below = self.addend(left), self.addend(right)
        if above is None or below is None or len(below) > 1 or below[0].kind != "sum" or below[0].learns:
            return None
        if any(term.kind != "sum" for term in above):
            return None
        return tuple(Term("count", term.scale, str(right)[1:], term.learns) for term in above)

    def is_form(self, value: object) -> bool:
        return is_ref(value) and str(value)[1:] in self.forms

    def addend(self, value: object) -> Form:
        """An argument of a sum."""
        return self.forms[str(value)[1:]] if self.is_form(value) else (Term("fixed"),)

    def factor(self, value: object) -> float | None:
        """What a factor says of the size of the batch: its value, 1 for what is learned or given."""
        if isinstance(value, (int, float)) and value:
            return float(value)
        if not is_ref(value):
            return None
        name = str(value)[1:]
        if name in self.learned or name in self.shared:
            return 1.0
        found = float(value_of(self.graph, name, self.constants).double().sum())
        return found or None


def _scaled(form: Form, factor: float) -> Form:
    return None if form is None else tuple(replace(term, scale=term.scale * factor) for term in form)
