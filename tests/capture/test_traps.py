"""What torch.export drops without a word is kept or refused."""

import pytest
import torch
from tests.capture.equality import difference
from torch import Tensor, nn

from trine.capture.export import capture
from trine.capture.model import Model, make_model
from trine.errors import BadInput, CaptureFailed
from trine.graph.graph import Graph


def square(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).square().mean()


def model_of(module: nn.Module, features: int = 8) -> Model:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, features, generator=generator)
    return make_model(module, (x,), torch.randn(4, features, generator=generator), square)


def graph_of(module: nn.Module, training: bool = True) -> Graph:
    return capture(model_of(module), training=training, with_loss=True).graph


class NoGrad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = self.line(x)
            self.mean.mul_(0.9).add_(fixed.mean(0), alpha=0.1)
            with torch.enable_grad():
                free = self.line(x * 2)
            fixed = fixed + free
        return self.line(x) * fixed + free + self.mean


def test_a_block_without_gradients_stays_without() -> None:
    found = difference(model_of(NoGrad()))
    assert max(found.outputs, found.gradients, found.buffers) <= 1e-14


class Mutates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.line(x)
        with torch.no_grad():
            y.mul_(2)
        return y


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad * 3


class OwnBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return Sign.apply(self.line(x))


class InferenceMode(OwnBackward):
    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            y = self.line(x)
        return self.line(x) + y.clone()


class Decides(OwnBackward):
    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) if x.sum() > 0 else x


class Selects(OwnBackward):
    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) + x[x > 0].sum()


class Remembers(OwnBackward):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.line(x) + self.last
        self.last = y.detach().mean(0)
        return y


class Noise(OwnBackward):
    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) + torch.randn_like(x)


class TracksInstances(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(8, track_running_stats=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.unsqueeze(-1).expand(-1, -1, 3)).sum(-1)


class Spectrum(OwnBackward):
    def forward(self, x: Tensor) -> Tensor:
        z = torch.fft.rfft(self.line(x))
        return torch.fft.irfft(z.conj())


class ComplexWeight(OwnBackward):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.ones(8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.line(x) * self.turn).real


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        (Mutates, "y.mul_(2)", "no_grad"),
        (OwnBackward, "Sign.apply", "Sign is a torch.autograd.Function"),
        (InferenceMode, "torch.inference_mode()", "inference_mode"),
        (Decides, "x.sum() > 0", "values of a tensor"),
        (Selects, "", "depends on data"),
        (Noise, "", "randn_like"),
        (Remembers, "", "registered buffer"),
        (TracksInstances, "", "running statistics"),
        (Spectrum, "", "complex64"),
        (ComplexWeight, "", "the parameter turn has the data type complex64"),
    ],
)
def test_what_a_graph_would_lose_is_refused_by_line(
    kind: type[nn.Module], text: str, word: str, capfd: pytest.CaptureFixture
) -> None:
    with pytest.raises(CaptureFailed, match=word) as caught:
        graph_of(kind())
    assert caught.value.line.startswith("test_traps.py:") or kind in (TracksInstances, Remembers, ComplexWeight)
    assert text in caught.value.line or text.startswith("y.")
    assert capfd.readouterr().err == ""


def test_own_backward_is_no_matter_in_inference() -> None:
    assert [op.base for op in graph_of(OwnBackward(), training=False).operators][:2] == ["linear", "sign"]


class Tied(nn.Module):
    """A language model with tied weights, dropout and a loss over padded labels; used in the first and last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("place", torch.randn(12, 16), persistent=False)
        self.scale = torch.full((16,), 0.5)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        x = self.embed(ids) * self.scale + self.place
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=x.dtype)
        return {"logits": self.head(self.layer(x, src_mask=mask, is_causal=True))}


def padded(output: dict[str, Tensor], labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output["logits"].flatten(0, 1), labels.flatten(), label_smoothing=0.1)


def tied() -> Model:
    ids = torch.randint(32, (3, 12), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[0, 4:] = -100
    return make_model(Tied(), (ids,), labels, padded)


def test_tied_weights_are_one_tensor_with_two_names() -> None:
    captured = capture(tied(), training=True, with_loss=True)
    assert captured.graph.names["embed.weight"] == ("embed.weight", "head.weight")
    assert "head.weight" not in captured.graph.tensors
    assert captured.graph.tensors["place"].kind == "buffer"
    assert captured.graph.by_kind("constant")[0].shape == (16,)


@pytest.mark.parametrize("training", [True, False])
def test_a_tied_language_model_with_dropout_is_equal(training: bool) -> None:
    found = difference(tied(), training)
    assert max(found.outputs, found.loss, found.gradients) <= 1e-13
    assert found.num_draws == (4 if training else 0)


def test_labels_that_are_the_inputs_stay_two_inputs() -> None:
    ids = torch.zeros(2, 4, dtype=torch.int64)
    module = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8))
    loss = lambda output, labels: nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten())  # noqa: E731
    graph = capture(make_model(module, (ids,), ids, loss), training=True, with_loss=True).graph
    assert graph.inputs == ("input", "targets")
    assert "%targets" in [op.args.get("self") for op in graph.operators]


def test_the_mode_of_every_module_is_as_before() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).train()
    module[1].eval()
    before = [part.training for part in module.modules()]
    graph = graph_of(module)
    assert [part.training for part in module.modules()] == before
    assert [op.base for op in graph.operators][:3] == ["linear", "batch_norm_eval", "dropout"]


def test_a_model_without_a_loss_says_so() -> None:
    model = make_model(nn.Linear(8, 8), (torch.randn(2, 8),))
    with pytest.raises(BadInput, match="no loss"):
        capture(model, training=True, with_loss=True)
    assert capture(model, training=False, with_loss=False).graph.loss is None


def test_an_unused_parameter_and_a_plain_result_are_kept() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor, scale: float = 1.0) -> tuple:
            return self.used(x) * scale, {"n": 3, "none": None}, x

    captured = capture(make_model(Odd(), (torch.randn(2, 8), 2.0)), training=False, with_loss=False)
    assert "unused.weight" in captured.graph.tensors
    result = captured.unflatten({"mul": torch.ones(1), "x": torch.zeros(1)})
    assert result[1] == {"n": 3, "none": None}
    assert captured.leaves == {"x": 0}
