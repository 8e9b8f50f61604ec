"""Parts: which indices of one dimension an engine has, as a short sorted list of half-open intervals.

A part is a tuple of ``(low, high)`` pairs, sorted, disjoint and not touching; ``()`` is empty.  Cutting packed
query-key-value weights by heads gives ``((0, 32), (64, 96), (128, 160))``: that is why one interval is not enough.
The tile of a part is *packed*: its k-th row is the k-th index of the part.
"""

from collections.abc import Collection, Iterable, Sequence
from math import prod

import numpy as np

Part = tuple[tuple[int, int], ...]
Box = tuple[Part, ...]  # one part per dimension


def span(low: int, high: int) -> Part:
    """The indices ``low … high - 1``; empty when ``high <= low``."""
    return ((low, high),) if high > low else ()


def size(part: Part) -> int:
    """How many indices the part has."""
    return sum(high - low for low, high in part)


def merge(intervals: Iterable[tuple[int, int]]) -> Part:
    """The union of intervals in any order, overlapping or not."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(pair for pair in intervals if pair[1] > pair[0]):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def union(*parts: Part) -> Part:
    """The indices that are in any of the parts."""
    return merge(pair for part in parts for pair in part)


def intersect(a: Part, b: Part) -> Part:
    """The indices that are in both parts."""
    result, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            result.append((low, high))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def subtract(a: Part, b: Part) -> Part:
    """The indices of ``a`` that are not in ``b``."""
    if not b:
        return a
    edges = [-(1 << 62), *(edge for pair in b for edge in pair), 1 << 62]
    gaps = tuple((edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1])
    return intersect(a, gaps)


def contains(a: Part, b: Part) -> bool:
    """Whether ``b`` lies in ``a``."""
    return intersect(a, b) == b


def shift(part: Part, by: int) -> Part:
    """The part moved by a number of indices."""
    return tuple((low + by, high + by) for low, high in part)


def within(inner: Part, outer: Part) -> Part:
    """Positions of the indices of ``inner`` in the packed tile of ``outer``; ``inner`` must lie in ``outer``."""
    result, offset = [], 0
    for low, high in outer:
        result += [(i - low + offset, j - low + offset) for i, j in intersect(inner, ((low, high),))]
        offset += high - low
    return merge(result)


def at_positions(where: Part, outer: Part) -> Part:
    """Indices of positions in the packed tile of ``outer``: the inverse of :func:`within`."""
    result, offset = [], 0
    for low, high in outer:
        here = intersect(where, ((offset, offset + high - low),))
        result += [(i - offset + low, j - offset + low) for i, j in here]
        offset += high - low
    return merge(result)


def indices(part: Part) -> np.ndarray:
    """The indices of the part as an int64 array."""
    if not part:
        return np.empty(0, np.int64)
    return np.concatenate([np.arange(low, high, dtype=np.int64) for low, high in part])


def from_indices(values: np.ndarray) -> Part:
    """The part that holds just these indices (duplicates allowed, any order)."""
    if not len(values):
        return ()
    values = np.unique(values)
    breaks = np.flatnonzero(np.diff(values) != 1)
    lows = values[np.concatenate(([0], breaks + 1))]
    highs = values[np.concatenate((breaks, [len(values) - 1]))] + 1
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))


def even(length: int, shares: Sequence[float], blocks: int = 1) -> tuple[Part, ...]:
    """Cut ``range(length)`` by shares inside each of ``blocks`` equal blocks; one part per share.

    Boundaries are the rounded running sums of the shares, so sizes need not divide and a part may be empty.
    """
    block, total = length // blocks, float(sum(shares))
    running = np.concatenate(([0.0], np.cumsum(np.asarray(shares, float)))) / total
    edges = [int(np.floor(block * r + 0.5)) for r in running]
    return tuple(
        merge((b * block + edges[i], b * block + edges[i + 1]) for b in range(blocks)) for i in range(len(shares))
    )


def is_partition(parts: Sequence[Part], length: int) -> bool:
    """Whether every index of ``range(length)`` is in exactly one part."""
    return sum(size(part) for part in parts) == length and union(*parts) == span(0, length)


def is_grid(boxes: Collection[Box], shape: Sequence[int]) -> bool:
    """Whether different boxes are all those of a grid of partitions, so that every element is in exactly one."""
    lines = [{box[dim] for box in boxes} for dim in range(len(shape))]
    whole = all(is_partition(tuple(line), length) for line, length in zip(lines, shape, strict=True))
    return whole and len(set(boxes)) == prod(len(line) for line in lines)


def full(shape: Sequence[int]) -> Box:
    """The box that is the whole tensor."""
    return tuple(span(0, n) for n in shape)


def shape_of(box: Box) -> tuple[int, ...]:
    """The shape of the packed tile of a box."""
    return tuple(size(part) for part in box)


def volume(box: Box) -> int:
    """How many elements the box has."""
    result = 1
    for part in box:
        result *= size(part)
    return result
