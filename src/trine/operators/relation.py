"""Relations: how a part of an operator's index range maps to a part of one input dimension.

``needs`` answers "which input indices does this part of the range read?"; ``follow`` answers "which part of the range
belongs to an engine that owns these input indices?": it maps a partition of the input to a partition of the range
(with gaps that the caller closes, see :func:`trine.operators.family.complete`).  All indices are global.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from trine.graph.part import Part, from_indices, indices, intersect, merge, shift, span


class Relation(ABC):
    """Abstract: see the module."""

    @abstractmethod
    def needs(self, part: Part) -> Part:
        """Input indices that the part of the range reads."""

    @abstractmethod
    def follow(self, part: Part) -> Part:
        """The part of the range that goes with these input indices."""

    def legal(self, part: Part) -> bool:
        """Whether a piece can run on this part of the range."""
        return True


@dataclass(frozen=True)
class Same(Relation):
    """Index i reads input index i."""

    def needs(self, part: Part) -> Part:
        return part

    def follow(self, part: Part) -> Part:
        return part


@dataclass(frozen=True)
class Shift(Relation):
    """Index i reads input index i − offset, where there is one (cat: offset ≥ 0; slice with step 1: offset ≤ 0).

    ``num_in`` and ``num_range`` are the lengths of the input dimension and of the range.
    """

    offset: int
    num_in: int
    num_range: int

    def needs(self, part: Part) -> Part:
        return intersect(shift(part, -self.offset), span(0, self.num_in))

    def follow(self, part: Part) -> Part:
        return intersect(shift(part, self.offset), span(0, self.num_range))


@dataclass(frozen=True)
class Window(Relation):
    """Output o reads inputs o·stride − pad … + dilation·(kernel − 1), clipped to the input."""

    kernel: int
    stride: int
    dilation: int
    pad: int
    num_in: int
    num_range: int

    def raw(self, low: int, high: int) -> tuple[int, int]:
        """The unclipped input interval of outputs ``low … high - 1``; what lies outside the input is padding."""
        first = low * self.stride - self.pad
        return first, (high - 1) * self.stride - self.pad + self.dilation * (self.kernel - 1) + 1

    def needs(self, part: Part) -> Part:
        return merge(self.reads(low, high) for low, high in part)

    def reads(self, low: int, high: int) -> tuple[int, int]:
        """The tightest interval with every input index that outputs ``low … high - 1`` read."""
        first, last = self.num_in, -1
        for tap in range(self.kernel):
            at = tap * self.dilation - self.pad  # output o reads o·stride + at
            o = max(low, -(at // self.stride))
            if o < high and o * self.stride + at < first:
                first = o * self.stride + at
            o = min(high - 1, (self.num_in - 1 - at) // self.stride)
            if o >= low and o * self.stride + at > last:
                last = o * self.stride + at
        return first, last + 1

    def follow(self, part: Part) -> Part:
        def edge(i: int) -> int:
            return self.num_range if i >= self.num_in else min(-(-i // self.stride), self.num_range)

        return merge((edge(low), edge(high)) for low, high in part)

    def legal(self, part: Part) -> bool:
        return len(part) <= 1


@dataclass(frozen=True)
class Transposed(Relation):
    """Output o reads the inputs i with o = i·stride − pad + dilation·tap for a tap of the kernel, where there are any;
    boundaries follow in proportion."""

    kernel: int
    stride: int
    dilation: int
    pad: int
    num_in: int
    num_range: int

    def needs(self, part: Part) -> Part:
        return merge(self.reads(low, high) for low, high in part)

    def reads(self, low: int, high: int) -> tuple[int, int]:
        """The tightest interval with every input index that outputs ``low … high - 1`` read; empty if there is none."""
        first, last = self.num_in, -1
        for tap in range(self.kernel):
            at = tap * self.dilation - self.pad  # input i is read by output i·stride + at
            i = max(0, -(-(low - at) // self.stride))
            if i < self.num_in and i * self.stride + at < high:
                first = min(first, i)
            i = min(self.num_in - 1, (high - 1 - at) // self.stride)
            if i >= 0 and i * self.stride + at >= low:
                last = max(last, i)
        return (first, last + 1) if first <= last else (0, 0)

    def follow(self, part: Part) -> Part:
        return merge((_in_proportion(low, self), _in_proportion(high, self)) for low, high in part)

    def legal(self, part: Part) -> bool:
        return len(part) <= 1 and (not part or bool(self.needs(part)))


def _in_proportion(edge: int, relation: Transposed) -> int:
    return (2 * edge * relation.num_range + relation.num_in) // (2 * relation.num_in)


@dataclass(frozen=True)
class Blocks(Relation):
    """A range whose indices lie in rows of ``width`` (the places of windows in a plane): row r reads as ``rows`` says
    of index r.  Parts are whole rows."""

    rows: Relation
    width: int

    def needs(self, part: Part) -> Part:
        return self.rows.needs(merge((low // self.width, -(-high // self.width)) for low, high in part))

    def follow(self, part: Part) -> Part:
        return merge((low * self.width, high * self.width) for low, high in self.rows.follow(part))

    def legal(self, part: Part) -> bool:
        whole = all(edge % self.width == 0 for pair in part for edge in pair)
        return whole and self.rows.legal(merge((low // self.width, high // self.width) for low, high in part))


@dataclass(frozen=True)
class InBlocks(Relation):
    """An input whose indices lie in rows of ``width``: index o reads whole rows, as ``rows`` says."""

    rows: Relation
    width: int

    def needs(self, part: Part) -> Part:
        return merge((low * self.width, high * self.width) for low, high in self.rows.needs(part))

    def follow(self, part: Part) -> Part:
        return self.rows.follow(merge((low // self.width, -(-high // self.width)) for low, high in part))

    def legal(self, part: Part) -> bool:
        return self.rows.legal(part)


@dataclass(frozen=True)
class Table(Relation):
    """Output o reads inputs ``lows[o] … highs[o] - 1`` (adaptive pools, interpolation); boundaries follow in
    proportion."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    num_in: int

    def needs(self, part: Part) -> Part:
        return merge((self.lows[o], self.highs[o]) for low, high in part for o in range(low, high))

    def follow(self, part: Part) -> Part:
        num_range = len(self.lows)

        def edge(i: int) -> int:
            return (2 * i * num_range + self.num_in) // (2 * self.num_in)

        return merge((edge(low), edge(high)) for low, high in part)


@dataclass(frozen=True)
class Permuted(Relation):
    """Index i reads input index ``source[i]``: flip, roll, a strided slice, an index list known at capture."""

    source: tuple[int, ...]

    def needs(self, part: Part) -> Part:
        return from_indices(np.asarray(self.source, np.int64)[indices(part)])

    def follow(self, part: Part) -> Part:
        return from_indices(np.flatnonzero(np.isin(np.asarray(self.source, np.int64), indices(part))))


@dataclass(frozen=True)
class Regroup(Relation):
    """A view: the range is dimension ``range_dim`` of ``range_sizes``, the input dimension ``in_dim`` of ``in_sizes``;
    both lists have one product and number the same elements in row-major order.

    Only legal where cutting the one cuts the other and nothing else: see :meth:`is_box`.
    """

    in_sizes: tuple[int, ...]
    in_dim: int
    range_sizes: tuple[int, ...]
    range_dim: int

    def needs(self, part: Part) -> Part:
        return _regroup(part, self.range_sizes, self.range_dim, self.in_sizes, self.in_dim)

    def follow(self, part: Part) -> Part:
        return _regroup(part, self.in_sizes, self.in_dim, self.range_sizes, self.range_dim)

    def legal(self, part: Part) -> bool:
        return self.is_box(part, of_input=False)

    def is_box(self, part: Part, *, of_input: bool) -> bool:
        """Whether the part (of the input or of the range) is mapped to a box of the other side and back."""
        there, back = (self.follow, self.needs) if of_input else (self.needs, self.follow)
        image = there(part)
        sizes = (self.in_sizes, self.range_sizes) if of_input else (self.range_sizes, self.in_sizes)
        dims = (self.in_dim, self.range_dim) if of_input else (self.range_dim, self.in_dim)
        num_here = sum(h - low for low, h in part) * (prod(sizes[0]) // max(sizes[0][dims[0]], 1))
        num_there = sum(h - low for low, h in image) * (prod(sizes[1]) // max(sizes[1][dims[1]], 1))
        return num_here == num_there and back(image) == part


@lru_cache(maxsize=4096)
def _regroup(part: Part, sizes: tuple[int, ...], dim: int, new_sizes: tuple[int, ...], new_dim: int) -> Part:
    """Indices along ``new_dim`` of every element whose index along ``dim`` lies in the part."""
    inner, new_inner = prod(sizes[dim + 1 :]), prod(new_sizes[new_dim + 1 :])
    outer = prod(sizes[:dim])
    blocks = merge(
        ((o * sizes[dim] + low) * inner, (o * sizes[dim] + high) * inner) for o in range(outer) for low, high in part
    )
    found: list[tuple[int, int]] = []
    for low, high in blocks:
        first, last = low // new_inner, (high - 1) // new_inner
        if last - first >= new_sizes[new_dim] - 1:
            return span(0, new_sizes[new_dim])
        a, b = first % new_sizes[new_dim], last % new_sizes[new_dim]
        found += [(a, b + 1)] if a <= b else [(a, new_sizes[new_dim]), (0, b + 1)]
    return merge(found)


@dataclass(frozen=True)
class Scaled(Relation):
    """Blocks of ``num_here`` range indices read blocks of ``num_there`` input indices, in order: grouped channels,
    key-value heads that several query heads share, pixel shuffle."""

    num_here: int
    num_there: int

    def needs(self, part: Part) -> Part:
        here, there = self.num_here, self.num_there
        return merge((low // here * there, -(-high // here) * there) for low, high in part)

    def follow(self, part: Part) -> Part:
        def edge(i: int) -> int:
            return -(-i // self.num_there) * self.num_here

        return merge((edge(low), edge(high)) for low, high in part)


@dataclass(frozen=True)
class Prefix(Relation):
    """Index i reads the inputs 0 … i (causal attention: the keys that a query row sees)."""

    num_in: int
    num_range: int

    def needs(self, part: Part) -> Part:
        return span(0, min(part[-1][1], self.num_in)) if part else ()

    def follow(self, part: Part) -> Part:
        return intersect(part, span(0, self.num_range))
