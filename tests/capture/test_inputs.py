"""Example inputs: names, batch dimensions, slices and other sizes."""

import pytest
import torch
from torch import Tensor, nn

from trine.capture.export import capture
from trine.capture.inputs import slice_batch
from trine.capture.model import make_model, resized
from trine.errors import BadInput, UnknownKey


class Two(nn.Module):
    def forward(self, x: Tensor, pair: tuple[Tensor, Tensor], table: Tensor, *, mask: Tensor) -> Tensor:
        return (x + pair[0].t() * pair[1]) * mask + table


def example(**rest):
    x = torch.randn(4, 3)
    inputs = {
        "x": x,
        "pair": (torch.randn(4, 3).t(), x.clone()),
        "table": torch.ones(3),
        "mask": torch.ones(4, 3).bool(),
    }
    return make_model(Two(), inputs, batch_dims={"pair": 0, "table": None} | rest)


def test_names_and_batch_dims_reach_the_graph() -> None:
    class Keyed(nn.Module):
        def forward(self, x: Tensor, keys: list[Tensor], table: Tensor) -> Tensor:
            return x + keys[0] + keys[1] + table

    inputs = (torch.randn(3, 4), [torch.randn(3, 4), torch.randn(3, 4)], torch.ones(3, 4))
    model = make_model(Keyed(), inputs, batch_dims={"x": 1, "keys": -1, "table": None})
    graph = capture(model, training=False, with_loss=False).graph
    assert graph.inputs == ("x", "keys_0", "keys_1", "table")
    assert graph.batch_dims == {"x": 1, "keys_0": 1, "keys_1": 1}
    assert model.inputs.batch == 4


def test_a_wrong_batch_dim_says_what_to_write() -> None:
    with pytest.raises(BadInput, match=r'batch_dims=\{"pair": None\}'):
        example()
    with pytest.raises(UnknownKey, match="mask"):
        example(masc=0)


def test_slice_and_capture_of_a_smaller_batch() -> None:
    x, y = torch.arange(12.0).view(6, 2), torch.arange(6)
    model = make_model(nn.Linear(2, 8), (x,), y, nn.functional.cross_entropy)
    piece = slice_batch(model.inputs, 2, 5)
    assert piece.batch == 3
    assert torch.equal(piece.args[0], x[2:5])
    assert torch.equal(piece.targets, y[2:5])
    captured = capture(model, training=True, with_loss=True, batch=3)
    assert captured.graph.tensors["input"].shape == (3, 2)
    assert torch.equal(captured.flatten(piece)["targets"], y[2:5])
    with pytest.raises(BadInput, match="batch of 6"):
        slice_batch(model.inputs, 4, 7)


def test_another_size_is_random_again_and_the_same_for_a_seed() -> None:
    model = make_model(nn.Linear(2, 8), (torch.randn(2, 2),), torch.tensor([3, 5]), nn.functional.cross_entropy)
    before = torch.get_rng_state()
    first, second = resized(model, 16).inputs, resized(model, 16).inputs
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.args[0], second.args[0])
    assert first.args[0].shape == (16, 2)
    assert set(first.targets.tolist()) == {3, 4, 5}
    assert resized(model, 2) is model
