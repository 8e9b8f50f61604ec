"""From one layout to another: the steps, and the messages of a step.

``steps`` changes one axis at a time, in the order that moves least: slice what is whole, sum what is partial, hand
over to another stage, gather what is split.  ``shares`` lists who gives what to whom in one step.
"""

from collections.abc import Iterator, Sequence

from trine.graph.part import Box, intersect, subtract, volume
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, State, box, narrows
from trine.plan.plan import Plan
from trine.program.program import TransferKind

Step = tuple[TransferKind | str, int, Layout]  # (kind or "slice", axis or the new stage, layout after it)


def steps(have: Layout, want: Layout, source: int, target: int, *, slice_first: bool = True) -> list[Step]:
    """Steps that lead from a layout in a source stage to a layout in a target stage."""
    now, result = list(have), list[Step]()

    def narrow() -> None:
        before = tuple(now)
        for axis, state in enumerate(want):
            if now[axis] != state and narrows(now[axis], state):
                now[axis] = state
        if tuple(now) != before:
            result.append(("slice", 0, tuple(now)))

    if slice_first:
        narrow()
    for axis, state in enumerate(want):
        if now[axis] == PARTIAL:
            now[axis] = state
            result.append(("all_reduce" if state == WHOLE else "reduce_scatter", axis, tuple(now)))
    if source != target:
        result.append(("hand_over", target, tuple(now)))
    for axis, state in enumerate(want):
        if now[axis] != state and not narrows(now[axis], state):
            kind = _kind(now[axis], state)
            now[axis] = state
            result.append((kind, axis, tuple(now)))
    narrow()
    return result


def _kind(have: State, want: State) -> TransferKind:
    if want == WHOLE:
        return "all_gather"
    assert isinstance(have, Split)
    assert isinstance(want, Split)
    return "exchange" if have.dim == want.dim else "all_to_all"


Shares = list[list[tuple[int, Box]]]  # for each coordinate: (the other's coordinate, global box)


def shares(
    plan: Plan, shape: tuple[int, ...], before: Layout, after: Layout, axis: int, coords: Sequence[int]
) -> Shares:
    """What each coordinate of an axis gets in one step from which, in the group of the engine at ``coords``.

    What several have is taken from oneself if possible, else from the nearest coordinate.
    """
    group = [(*coords[:axis], c, *coords[axis + 1 :]) for c in range(plan.axes[axis].size)]
    had = [box(before, shape, each) for each in group]
    have = before[axis]
    dim = have.dim if isinstance(have, Split) else None
    return [_taken(c, box(after, shape, each), had, dim) for c, each in enumerate(group)]


def _taken(here: int, want: Box, had: Sequence[Box], dim: int | None) -> list[tuple[int, Box]]:
    """What one coordinate takes from which.  ``had`` differs along ``dim`` only; None: all are summands."""
    region = tuple(intersect(p, q) for p, q in zip(had[here], want, strict=True))
    if dim is None:
        return [(c, region) for c in range(len(had)) if volume(region)]
    result: list[tuple[int, Box]] = []
    left = want[dim]
    for c in _outwards(here, len(had)):
        if not left:
            break
        part = intersect(had[c][dim], left)
        if part:
            left = subtract(left, part)
            result.append((c, (*region[:dim], part, *region[dim + 1 :])))
    return sorted(each for each in result if volume(each[1]))


def _outwards(start: int, end: int) -> Iterator[int]:
    """``start``, then its neighbours, the nearest first and the lower of two first."""
    yield start
    for distance in range(1, end):
        yield from (c for c in (start - distance, start + distance) if 0 <= c < end)


def turned(of: Shares) -> Shares:
    """What each coordinate gives to which, from what each gets."""
    result: Shares = [[] for _ in of]
    for c, gets in enumerate(of):
        for other, where in gets:
            result[other].append((c, where))
    return result
