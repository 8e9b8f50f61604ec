"""From one layout to another: the steps, and the messages of a step.

``steps`` changes one axis at a time, in the order that moves least: slice what is whole, sum what is partial, hand
over to another stage, gather what is split.  ``pieces`` lists who gives what to one engine in one step.
"""

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


def pieces(
    plan: Plan, shape: tuple[int, ...], before: Layout, after: Layout, axis: int | None, stages: tuple[int, int],
    coords: tuple[int, ...],
) -> list[tuple[int, tuple[int, ...], Box]]:  # fmt: skip
    """(source rank, source coordinates, global box) of all that the engine at ``coords`` gets in one step.

    Without an axis it is a hand-over between equal coordinates of two stages.  What several have is taken from oneself
    if possible, else from the nearest coordinate.
    """
    source, target = stages
    if axis is None:
        return [(plan.rank(source, coords), coords, box(before, shape, coords))]
    want = box(after, shape, coords)
    others = sorted(range(plan.axes[axis].size), key=lambda c: (abs(c - coords[axis]), c))
    have = before[axis]
    result: list[tuple[int, tuple[int, ...], Box]] = []
    covered: tuple[tuple[int, int], ...] = ()
    for c in others:
        peer = coords[:axis] + (c,) + coords[axis + 1 :]
        region = tuple(intersect(p, q) for p, q in zip(box(before, shape, peer), want, strict=True))
        if isinstance(have, Split):
            fresh = subtract(region[have.dim], covered)
            region = region[: have.dim] + (fresh,) + region[have.dim + 1 :]
            covered = tuple(sorted((*covered, *fresh)))
        if volume(region):
            result.append((plan.rank(target, peer), peer, region))
    return sorted(result)
