"""The integer hash: rate, independence, and a box that draws what the whole would."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.capture.draws import below, keys, random_words, uniform_hash

SHAPE = (1 << 20,)
LIMIT = 5.0  # standard deviations


@pytest.mark.parametrize("p", [0.0, 0.025, 0.1, 0.5, 0.9, 1.0])
def test_rate(p: float) -> None:
    rate = below(random_words(0, 0, 0, 0, SHAPE), p).double().mean().item()
    assert abs(rate - p) <= LIMIT * (p * (1 - p) / SHAPE[0]) ** 0.5


def test_uniform() -> None:
    u = uniform_hash(3, 1, 4, 1, SHAPE)
    assert u.min() >= 0
    assert u.max() < 1
    counts = torch.histc(u.float(), 256, 0, 1).double()
    expected = SHAPE[0] / 256
    assert ((counts - expected) ** 2 / expected).sum() <= 255 + LIMIT * 510**0.5


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """In standard deviations of independent numbers."""
    a, b = a - a.mean(), b - b.mean()
    return ((a * b).mean() / (a.std() * b.std())).abs().item() * len(a) ** 0.5


@pytest.mark.parametrize("lag", [1, 2, 7, 64, 224, 1024, 50176])
def test_neighbours_are_independent(lag: int) -> None:
    u = uniform_hash(0, 0, 0, 0, SHAPE)
    assert correlation(u[:-lag], u[lag:]) <= LIMIT


@pytest.mark.parametrize("other", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_seed_step_micro_batch_and_operator_are_independent(other: tuple[int, int, int, int]) -> None:
    u, v = uniform_hash(0, 0, 0, 0, SHAPE), uniform_hash(*other, SHAPE)
    assert correlation(u, v) <= LIMIT
    assert correlation(u[1:], v[:-1]) <= LIMIT


def test_keys_differ() -> None:
    seen = {keys(*numbers) for numbers in product(range(8), repeat=4)}
    assert len(seen) == 8**4


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[list[int]]]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    box = []
    for length in shape:
        edges = sorted(draw(st.sets(st.integers(0, length), max_size=4)))
        box.append([list(pair) for pair in zip(edges[::2], edges[1::2], strict=False)])
    return shape, box


@given(boxes(), st.integers(0, 1 << 40))
@settings(max_examples=60, deadline=None)
def test_a_box_draws_what_the_whole_would(case: tuple, seed: int) -> None:
    shape, box = case
    whole = random_words(seed, 2, 3, 4, shape)
    for dim, part in enumerate(box):
        index = torch.cat([torch.arange(low, high) for low, high in part] or [torch.empty(0, dtype=torch.int64)])
        whole = whole.index_select(dim, index)
    assert torch.equal(random_words(seed, 2, 3, 4, shape, box), whole)


def test_elements_beyond_two_to_the_32_draw_their_own() -> None:
    shape = (1 << 20, 1 << 20)
    rows = [[0, 1], [4096, 4097]]
    words = random_words(0, 0, 0, 0, shape, [rows, [[0, 1 << 16]]])
    assert correlation(words[0].double(), words[1].double()) <= LIMIT
    small = random_words(0, 0, 0, 0, (1 << 10, 1 << 20), [[[0, 1]], [[0, 1 << 16]]])
    assert torch.equal(words[0], small[0])
