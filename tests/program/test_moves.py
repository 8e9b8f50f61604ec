"""Redistribution between random layouts on a mesh of 2 x 3 engines makes the tensor, and sends nothing in vain."""

from itertools import product

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.plan.draw import SHAPE, SIZES, layouts

from trine.graph.part import Box, indices, shape_of, volume, within
from trine.plan.layout import PARTIAL, WHOLE, Layout, Split, box
from trine.plan.plan import Axis, Plan
from trine.program.moves import Step, shares, steps

PLAN = Plan(axes=(Axis("a", SIZES[0], "height"), Axis("b", SIZES[1], "channel")), stage_starts=("later",))
COORDS = list(product(*map(range, SIZES)))
Coords = tuple[int, ...]
Tiles = dict[Coords, np.ndarray]
Routes = dict[Coords, list[tuple[Coords, Box]]]  # destination → (source, global box)


def positions(inner: Box, outer: Box) -> tuple[np.ndarray, ...]:
    return np.ix_(*(indices(within(p, q)) for p, q in zip(inner, outer, strict=True)))


def route(step: Step, before: Layout) -> Routes:
    """Who gives what to whom in one step."""
    kind, axis, after = step
    if kind == "slice":
        return {c: [(c, box(after, SHAPE, c))] for c in COORDS}
    if kind == "hand_over":
        return {c: [(c, box(before, SHAPE, c))] for c in COORDS}
    gets = {c: shares(PLAN, SHAPE, before, after, axis, c)[c[axis]] for c in COORDS}
    return {c: [((*c[:axis], other, *c[axis + 1 :]), where) for other, where in gets[c]] for c in COORDS}


def walk(have: Layout, path: list[Step]) -> list[tuple[Layout, Layout, Routes]]:
    result, now = [], have
    for step in path:
        result.append((now, step[2], route(step, now)))
        now = step[2]
    return result


def forth(tiles: Tiles, before: Layout, after: Layout, routes: Routes) -> Tiles:
    result = {}
    for coords, parts in routes.items():
        mine = box(after, SHAPE, coords)
        tile = np.zeros(shape_of(mine), np.int64)
        for peer, where in parts:
            tile[positions(where, mine)] += tiles[peer][positions(where, box(before, SHAPE, peer))]
        result[coords] = tile
    return result


def scatter(whole: np.ndarray, layout: Layout) -> Tiles:
    """Tiles of a tensor; along partial axes they are summands."""
    partial = [axis for axis, state in enumerate(layout) if state == PARTIAL]
    random, first = np.random.default_rng(0), (0,) * len(partial)
    summands = {key: random.integers(-9, 9, SHAPE) for key in product(*(range(SIZES[axis]) for axis in partial))}
    summands[first] += whole - sum(summands.values())
    return {
        c: summands[tuple(c[axis] for axis in partial)][np.ix_(*(indices(part) for part in box(layout, SHAPE, c)))]
        for c in COORDS
    }


HAVE = layouts(overlapping=False, partial=True)
WANT = layouts(overlapping=True, partial=False)
UNEVEN = (Split(0, (((0, 1),), ((1, 5),))), Split(1, (((0, 1), (2, 3)), ((1, 2),), ((3, 4),))))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(HAVE, WANT, st.integers(0, 1), st.booleans())
@example(UNEVEN, (WHOLE, WHOLE), 0, True)
@example((PARTIAL, PARTIAL), (WHOLE, UNEVEN[1]), 1, True)
def test_redistribution_makes_the_tensor(have: Layout, want: Layout, target: int, slice_first: bool) -> None:
    whole = np.arange(np.prod(SHAPE)).reshape(SHAPE) + 1
    tiles = scatter(whole, have)
    path = steps(have, want, 0, target, slice_first=slice_first)
    assert (path[-1][2] if path else have) == want
    assert sum(step[0] == "hand_over" for step in path) == target
    for before, after, routes in walk(have, path):
        tiles = forth(tiles, before, after, routes)
    for coords in COORDS:
        np.testing.assert_array_equal(tiles[coords], whole[np.ix_(*(indices(p) for p in box(want, SHAPE, coords)))])


@settings(derandomize=True, deadline=None)
@given(layouts(overlapping=False, partial=False), WANT)
def test_nothing_is_sent_that_is_there(have: Layout, want: Layout) -> None:
    """In a step, an engine gets from others only what it lacks, and each element once."""
    for before, after, routes in walk(have, steps(have, want, 0, 0)):
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
