"""What every operator family answers, and the table of families.

A :class:`Rule` is one way to cut an operator: along one index range, which is a dimension of its outputs, or a
dimension that is summed away.  Rules along different ranges combine freely (height by width, batch by channel), so a
footprint is one rule for each mesh axis.  An operator without a fitting rule runs whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trine.graph.graph import Operator, Tensor
from trine.graph.part import Box, Part, intersect, is_partition, merge, size, span, subtract, union, volume
from trine.operators.relation import Relation

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Cut:
    """Input number ``position`` (counted over ``op.inputs``) is cut along ``dim``, by the relation."""

    position: int
    dim: int
    relation: Relation


@dataclass(frozen=True)
class Rule:
    """One way to cut an operator.

    kind: what the range is: ``batch`` is decided later, rules say ``space`` (windowed or resampled), ``row`` (any
        dimension that the operator treats index by index), ``feature`` (an output feature that only exists by a cut
        weight: output channel of a convolution, column of a linear), ``contraction`` (summed away), ``head`` (of
        attention), ``query``.
    length: number of indices in the range.
    inputs: the inputs that are cut; every other input is needed whole.
    outputs: (output number, dimension) cut by the range itself; empty when ``reduce``.
    reduce: ``"sum"`` when the outputs of the parts must be added, else ``""``.
    first_only: positions of inputs that only the first coordinate of a reducing cut uses (a bias).
    multiple: parts must start and end on multiples of this many indices (pixel shuffle, groups).
    """

    kind: str
    length: int
    inputs: tuple[Cut, ...]
    outputs: tuple[tuple[int, int], ...] = ((0, 0),)
    reduce: str = ""
    first_only: tuple[int, ...] = ()
    multiple: int = 1

    def cut_of(self, position: int) -> Cut | None:
        """How the rule cuts an input; None: it is needed whole."""
        return next((cut for cut in self.inputs if cut.position == position), None)

    def accepts(self, part: Part) -> bool:
        """Whether a piece can run on this part of the range."""
        fits = all(edge % self.multiple == 0 or edge == self.length for interval in part for edge in interval)
        return fits and all(cut.relation.legal(part) for cut in self.inputs)

    def follow(self, cut: Cut, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """A partition of the range that goes with a partition of an input; None if there is none, or if the parts of
        the range would overlap so much that cutting them is no use."""
        followed = [cut.relation.follow(part) for part in parts]
        if 2 * sum(size(part) for part in followed) > 3 * self.length:
            return None
        result = complete(followed, self.length)
        if self.multiple > 1:
            result = tuple(merge((self.nearest(low), self.nearest(high)) for low, high in part) for part in result)
        return result if all(self.accepts(part) for part in result) else None

    def nearest(self, index: int) -> int:
        """The nearest index at which a part may start or end."""
        return min((2 * index + self.multiple) // (2 * self.multiple) * self.multiple, self.length)


@dataclass(frozen=True)
class Local:
    """What one engine must know to run its piece of an operator.

    in_boxes, out_boxes: global boxes of what it has and makes, in the order of ``op.inputs`` and ``op.outputs``.
    dropped: positions of inputs that this engine must leave out (see ``Rule.first_only``).
    """

    op: Operator
    tensors: Tensors
    in_boxes: tuple[Box, ...]
    out_boxes: tuple[Box, ...]
    dropped: frozenset[int] = field(default_factory=frozenset)

    def box(self, name: str) -> Box:
        """Box of the first input tensor with this name."""
        return self.in_boxes[self.op.inputs.index(name)]


class Family:
    """Operators that are cut in one manner.  ``names`` are base names: ``conv2d``.

    A family is described by ``rules``; ``local`` says what to run for a piece, by default the operator itself.
    """

    names: tuple[str, ...] = ()

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        """Every way to cut this operator."""
        return ()

    def whole_needs(self, op: Operator, tensors: Tensors) -> dict[tuple[int, int], Part]:
        """(input position, dimension) → the part that the whole output reads, where that is not everything."""
        return {}

    def local(self, piece: Local) -> tuple[Operator, ...]:
        """Operators that make the piece from packed tiles; the last one has the outputs of ``piece.op``.

        Names of tensors in between must start with ``piece.op.name + "."``.
        """
        return (piece.op,)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        """Floating-point operations of a piece; one for each output element unless a family says otherwise."""
        return float(sum(volume(box) for box in out_boxes))

    def saved(self, op: Operator) -> tuple[str, ...]:
        """Names of the inputs and outputs that autograd keeps for the backward pass."""
        return op.inputs

    def kept_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """Bytes that autograd keeps beside inputs and outputs; ``num`` gives the elements of a tensor of the piece."""
        return 0

    def passing_bytes(self, op: Operator, num: Callable[[str], int]) -> int:
        """Bytes that live for a moment inside the backward pass, beside gradients of inputs and outputs."""
        return 0


def complete(parts: Sequence[Part], length: int) -> tuple[Part, ...]:
    """Close gaps and remove overlaps, so that the parts are a partition of ``range(length)``.

    An index that nobody has goes to the owner of the nearest index before it (else after it); an index that several
    have stays with the first.
    """
    if is_partition(parts, length):
        return tuple(parts)
    taken: Part = ()
    result: list[Part] = []
    for part in parts:
        result.append(subtract(intersect(part, span(0, length)), taken))
        taken = union(taken, part)
    if not taken:
        return (span(0, length), *((),) * (len(result) - 1))
    for low, high in subtract(span(0, length), taken):
        index = low - 1 if low > 0 else high
        owner = next(i for i, part in enumerate(result) if intersect(part, span(index, index + 1)))
        result[owner] = merge([*result[owner], (low, high)])
    return tuple(result)


FAMILIES: dict[str, Family] = {}


def register(family: type[Family]) -> type[Family]:
    """Class decorator: enter a family under its names."""
    instance = family()
    for name in family.names:
        if name in FAMILIES:
            raise ValueError(f"the operator {name} is in two families")
        FAMILIES[name] = instance
    return family


class Whole(Family):
    """Operators that nobody described: they run whole on every engine of their stage."""


WHOLE = Whole()


def rules_of(op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
    """Every way to cut an operator over tensors like these; found once."""
    key = tuple(tensors[name] for name in (*op.inputs, *op.outputs) if name is not None)
    known: tuple[tuple[Tensor, ...], tuple[Rule, ...]] | None = op.__dict__.get("rules")
    if known is None or known[0] != key:
        known = op.__dict__["rules"] = (key, family_of(op).rules(op, tensors))
    return known[1]


def family_of(op: Operator) -> Family:
    """The family of an operator; the one that runs it whole if nobody described it."""
    return FAMILIES.get(op.base, WHOLE)
