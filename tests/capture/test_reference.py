"""The plain module draws what the graph draws, and refuses what it cannot repeat."""

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from trine.capture.draws import below, random_words
from trine.capture.reference import counted_random, in_float64
from trine.errors import BadInput


def test_draws_are_numbered_in_order() -> None:
    x = torch.ones(64, 64)
    with counted_random(5, 2, 1):
        first, second = f.dropout(x, 0.25), torch.bernoulli(x, 0.25)
    assert torch.equal(first == 0, below(random_words(5, 2, 1, 0, (64, 64)), 0.25))
    assert torch.equal(second == 0, below(random_words(5, 2, 1, 1, (64, 64)), 0.75))
    with counted_random(5, 2, 1):
        assert torch.equal(f.dropout(x, 0.25), first)


def test_attention_draws_where_dropout_is_active() -> None:
    x = torch.randn(2, 2, 8, 4, generator=torch.Generator().manual_seed(0))
    with counted_random(1):
        dropped = f.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        plain = f.scaled_dot_product_attention(x, x, x)
    keep = ~below(random_words(1, 0, 0, 0, (2, 2, 8, 8)), 0.5)
    weights = (x @ x.mT / 2).softmax(-1) * keep / 0.5
    assert torch.allclose(dropped, weights @ x, atol=1e-5)
    assert torch.allclose(plain, f.scaled_dot_product_attention(x, x, x))


def test_other_random_operators_are_refused() -> None:
    with counted_random(0), pytest.raises(BadInput, match="randn"):
        torch.randn(3)


def test_global_random_state_is_not_touched() -> None:
    before = torch.get_rng_state()
    with counted_random(0):
        f.dropout(torch.ones(8), 0.5)
    assert torch.equal(torch.get_rng_state(), before)


def test_casts_stay_wide() -> None:
    module = nn.Linear(3, 3).double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with in_float64():
        y = module(x).float().softmax(-1, dtype=torch.float32) + torch.ones(3)
    assert y.dtype == torch.float64
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    plain = module(x).softmax(-1) + 1
    assert torch.allclose(grad, torch.autograd.grad(plain.square().sum(), x)[0], rtol=1e-14)


def test_tensors_that_are_no_parameters_are_wide_too() -> None:
    """Weights of classes in a loss, backward pass included; a narrow tensor that is written keeps its type."""
    weights, kept = torch.tensor([1.0, 2.0, 0.5]), torch.zeros(2)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 1, 2, 1])
    with in_float64():
        loss = f.cross_entropy(x, targets, weight=weights)
        loss.backward()
        kept.copy_(x.detach()[0, :2])
    assert x.grad is not None
    found, x.grad = x.grad, None
    f.cross_entropy(x, targets, weight=weights.double()).backward()
    assert torch.equal(found, x.grad)
    assert kept.dtype == torch.float32
    assert kept.any()
