"""Redistribution between random layouts on a mesh of 2 x 3 engines makes the tensor, and its transpose the adjoint."""

from itertools import product

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.plan.draw import SHAPE, SIZES, layouts

from trine.graph.part import Box, indices, shape_of, volume, within
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, box
from trine.plan.plan import Axis, Plan
from trine.program.moves import Step, pieces, steps

PLAN = Plan(axes=(Axis("a", SIZES[0], "height"), Axis("b", SIZES[1], "channel")), stage_starts=("later",))
COORDS = list(product(*map(range, SIZES)))
Tiles = dict[tuple[int, ...], np.ndarray]


def positions(inner: Box, outer: Box) -> tuple[np.ndarray, ...]:
    return np.ix_(*(indices(within(p, q)) for p, q in zip(inner, outer, strict=True)))


def route(step: Step, before: Layout, stages: tuple[int, int]) -> dict[tuple[int, ...], list[tuple[tuple[int, ...], Box]]]:
    """Destination → (source, global box) of one step."""
    kind, axis, after = step
    if kind == "slice":
        return {c: [(c, box(after, SHAPE, c))] for c in COORDS}
    number = None if kind == "hand_over" else axis
    return {c: [(peer, where) for _, peer, where in pieces(PLAN, SHAPE, before, after, number, stages, c)] for c in COORDS}


def walk(have: Layout, path: list[Step], source: int, target: int) -> list[tuple[Layout, Layout, dict]]:  # type: ignore[type-arg]
    result, now, stage = [], have, source
    for step in path:
        new = target if step[0] == "hand_over" else stage
        result.append((now, step[2], route(step, now, (stage, new))))
        now, stage = step[2], new
    return result


def forth(tiles: Tiles, before: Layout, after: Layout, routes: dict) -> Tiles:  # type: ignore[type-arg]
    result = {}
    for coords, parts in routes.items():
        mine = box(after, SHAPE, coords)
        tile = np.zeros(shape_of(mine), np.int64)
        for peer, where in parts:
            tile[positions(where, mine)] += tiles[peer][positions(where, box(before, SHAPE, peer))]
        result[coords] = tile
    return result


def back(tiles: Tiles, before: Layout, after: Layout, routes: dict) -> Tiles:  # type: ignore[type-arg]
    """The same pieces with the roles exchanged, always added."""
    result = {c: np.zeros(shape_of(box(before, SHAPE, c)), np.int64) for c in COORDS}
    for coords, parts in routes.items():
        for peer, where in parts:
            result[peer][positions(where, box(before, SHAPE, peer))] += tiles[coords][
                positions(where, box(after, SHAPE, coords))
            ]
    return result


def scatter(whole: np.ndarray, layout: Layout, random: np.random.Generator) -> Tiles:
    """Tiles of a tensor; along a partial axis random summands."""
    shares = {c: whole for c in COORDS}
    for axis, state in enumerate(layout):
        if state == PARTIAL:
            total = dict(shares)
            for c in COORDS:
                if c[axis]:
                    seed = tuple(n for i, n in enumerate(c) if i != axis or layout[i] == PARTIAL)
                    shares[c] = np.random.default_rng(seed).integers(-9, 9, SHAPE)
            for c in COORDS:
                if c[axis] == 0:
                    others = [c[:axis] + (n,) + c[axis + 1 :] for n in range(1, SIZES[axis])]
                    shares[c] = total[c] - sum(shares[o] for o in others)
    return {c: shares[c][np.ix_(*(indices(part) for part in box(layout, SHAPE, c)))] for c in COORDS}


HAVE = layouts(overlapping=False, partial=True)
WANT = layouts(overlapping=True, partial=False)
UNEVEN = (Split(0, (((0, 1),), ((1, 5),))), Split(1, (((0, 1), (2, 3)), ((1, 2),), ((3, 4),))))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(HAVE, WANT, st.integers(0, 1), st.booleans())
@example(UNEVEN, (WHOLE, WHOLE), 0, True)
@example((PARTIAL, PARTIAL), (WHOLE, UNEVEN[1]), 1, True)
def test_redistribution_makes_the_tensor(have: Layout, want: Layout, target: int, slice_first: bool) -> None:
    whole = np.arange(np.prod(SHAPE)).reshape(SHAPE) + 1
    tiles = scatter(whole, have, np.random.default_rng(0))
    path = steps(have, want, 0, target, slice_first=slice_first)
    assert (path[-1][2] if path else have) == want
    assert sum(step[0] == "hand_over" for step in path) == target
    for before, after, routes in walk(have, path, 0, target):
        tiles = forth(tiles, before, after, routes)
    for coords in COORDS:
        np.testing.assert_array_equal(tiles[coords], whole[np.ix_(*(indices(p) for p in box(want, SHAPE, coords)))])


@settings(derandomize=True, deadline=None)
@given(HAVE, WANT, st.integers(0, 1), st.integers(0, 1 << 30))
def test_the_transpose_is_the_adjoint(have: Layout, want: Layout, target: int, seed: int) -> None:
    """<move(x), y> = <x, move_back(y)> for tiles x and y that have nothing to do with each other."""
    random = np.random.default_rng(seed)
    x = {c: random.integers(-9, 9, shape_of(box(have, SHAPE, c))) for c in COORDS}
    y = {c: random.integers(-9, 9, shape_of(box(want, SHAPE, c))) for c in COORDS}
    path = walk(have, steps(have, want, 0, target), 0, target)
    there, here = x, y
    for before, after, routes in path:
        there = forth(there, before, after, routes)
    for before, after, routes in reversed(path):
        here = back(here, before, after, routes)
    assert sum((there[c] * y[c]).sum() for c in COORDS) == sum((x[c] * here[c]).sum() for c in COORDS)


@settings(derandomize=True, deadline=None)
@given(layouts(overlapping=False, partial=False), WANT)
def test_nothing_is_sent_that_is_there(have: Layout, want: Layout) -> None:
    """In a step, an engine gets from others only what it lacks, and each element once."""
    for before, after, routes in walk(have, steps(have, want, 0, 0), 0, 0):
        for coords, parts in routes.items():
            mine, wanted = box(before, SHAPE, coords), box(after, SHAPE, coords)
            here = np.zeros(SHAPE, np.int64)
            for peer, where in parts:
                grid = np.ix_(*(indices(p) for p in where))
                here[grid] += 1
                if peer != coords and volume(mine):
                    owned = np.zeros(SHAPE, bool)
                    owned[np.ix_(*(indices(p) for p in mine))] = True
                    assert not owned[grid].any()
            assert here.sum() == volume(wanted)
            assert here.max(initial=0) <= 1
