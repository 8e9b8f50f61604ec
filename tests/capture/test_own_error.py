"""A mistake of the user's own model, loss or inputs is one sentence that says what to correct."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.losses import assumed_loss
from trine.capture.model import Model, make_model
from trine.capture.specification import load_model
from trine.errors import BadInput, CaptureFailed
from trine.report.compare import compare
from trine.report.verify import verify

X, Y = torch.ones(4, 8), torch.zeros(4, 8)


class Then(nn.Module):
    """A layer and what follows it."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.line, self.change = nn.Linear(8, 8), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.line(x))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.count = nn.Linear(8, 8), 1

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.line(x) * self.count


def of(module: nn.Module, x: Tensor = X, y: Tensor = Y, loss: Callable[..., Tensor] = functional.mse_loss) -> Model:
    return make_model(module, (x,), y, loss)


def words(model: Model) -> str:
    with pytest.raises((BadInput, CaptureFailed)) as caught:
        capture(model, training=True, with_loss=True)
    return str(caught.value)


def test_a_number_that_forward_changes_is_state() -> None:
    module = Counts()
    found = words(of(module))
    assert "forward changes count" in found
    assert "register_buffer" in found
    assert module.count == 1


@pytest.mark.parametrize("option", ["sparse", "scale_grad_by_freq"])
def test_an_embedding_whose_gradient_has_no_parts(option: str) -> None:
    ids = torch.zeros(4, 3, dtype=torch.int64)
    loss = lambda output, targets: output.square().mean()  # noqa: E731
    given = {option: True}
    model = of(nn.Sequential(nn.Embedding(9, 8, **given)), ids, Y, loss)
    with pytest.raises(BadInput, match=rf"Module 0 of Sequential.*Write Embedding\({option}=False\)"):
        capture(model, training=True, with_loss=True)
    capture(model, training=False, with_loss=False)
    called = Then(lambda y: y + functional.embedding(ids[:, 0], y.new_ones(9, 8) * y.mean(), **given))
    with pytest.raises(BadInput, match=rf"test_own_error\.py:\d+ of Then.*{option}=False"):
        capture(of(called), training=True, with_loss=True)


@pytest.mark.parametrize(
    ("change", "way_out"),
    [
        (lambda y: y + torch.randn_like(y), "make it an input, or use --data"),
        (lambda y: torch.fft.irfft(torch.fft.rfft(y).conj()), "view_as_real"),
        (lambda y: y if y.sum() > 0 else y * 2, "does not depend on the values of tensors"),
    ],
)
def test_each_cause_has_its_own_way_out(change: Callable[[Tensor], Tensor], way_out: str) -> None:
    found = words(of(Then(change)))
    assert way_out in found
    assert ("values of tensors" in found) == ("values of tensors" in way_out)


def test_a_loss_that_is_not_one_number() -> None:
    assert "shape (4,). Return a scalar" in words(of(nn.Linear(8, 8), loss=lambda o, t: (o - t).mean(1)))


def test_where_the_assumed_loss_fails_a_loss_is_asked_for() -> None:
    found = words(of(Then(lambda y: y.argmax(-1)), y=torch.zeros(4, dtype=torch.int64), loss=assumed_loss))
    assert "No loss is known" in found
    assert "losses.py" not in found


def fails(y: Tensor) -> Tensor:
    raise ValueError


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (of(Then(fails)), r"raises ValueError\. Correct test_own_error.py:\d+"),
        (of(nn.Linear(8, 8), X.long()), "same dtype"),
        (of(nn.Linear(8, 8), loss=lambda o, t: t.mean()), "does not require grad"),
        (of(Then(lambda y: (lambda e: e + e.add_(1))(y.exp()))), "inplace"),
        (of(nn.Linear(8, 8), y=torch.full((4,), 30), loss=functional.cross_entropy), "out of bounds"),
        (of(nn.Sequential(nn.Embedding(9, 8)), torch.full((4,), 30)), "index out of range"),
    ],
)
def test_what_fails_on_one_engine_is_the_user_s_to_correct(model: Model, error: str) -> None:
    with pytest.raises(BadInput, match=rf"The model could not be run: .*{error}") as caught:
        verify(model)
    assert "Correct " in str(caught.value)


def test_nothing_to_train() -> None:
    model = make_model(nn.AvgPool1d(2), (torch.ones(4, 3, 8),), torch.zeros(4, 3, 4), functional.mse_loss)
    for verb in (verify, lambda m: compare(m, scenarios=("training",), engines=1)):
        with pytest.raises(BadInput, match="nothing to train"):
            verb(model)


FILE = """
import sys
import torch
from torch import nn

class Two(nn.Linear):
    def forward(self, x, y):
        return super().forward(x) + y.mean(0)

def two():
    return {"module": Two(8, 8), "inputs": (torch.ones(4, 8), torch.ones(6, 8)), "batch_dims": {"y": None}}

def wrong():
    return nn.Linear(8, 8), torch.ones(4, 7)

def silent():
    raise RuntimeError

def leaves():
    sys.exit(5)
"""


def test_a_model_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    assert load_model(f"{path}:two").inputs.batch == 4
    for name, said in (
        ("wrong", "cannot be multiplied"),
        ("silent", r"raised RuntimeError\. Correct"),
        ("leaves", r"mine\.py:\d+ raised SystemExit: 5\."),
    ):
        with pytest.raises(BadInput, match=said):
            load_model(f"{path}:{name}")
    assert capfd.readouterr().err == ""
