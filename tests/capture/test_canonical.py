"""One form for each operator."""

import torch
from tests.capture.equality import difference
from torch import Tensor, nn
from torch.nn import functional as f

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.graph.graph import Operator


class Of(nn.Module):
    """A function of the input and of a weight [6, 6]."""

    def __init__(self, function) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.w)


class Many(nn.Module):
    """Several functions side by side, so that one capture serves them all."""

    def __init__(self, functions: dict) -> None:
        super().__init__()
        for name, function in functions.items():
            self.add_module(name, function if isinstance(function, nn.Module) else Of(function))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [part(x) for part in self.children()]


def power(outputs: list[Tensor], _: None) -> Tensor:
    return sum(output.pow(2).sum() for output in outputs)


def check(functions: dict, shape: tuple[int, ...]) -> dict[str, list[Operator]]:
    """Operators by module, after the whole was found equal."""
    model = make_model(Many(functions), (torch.randn(shape, generator=torch.Generator().manual_seed(0)),), None, power)
    found = difference(model)
    assert max(found.outputs, found.gradients, found.buffers) <= 1e-13
    graph = capture(model, training=True, with_loss=True).graph
    return {name: [op for op in graph.operators if op.module.split(".")[0] == name] for name in functions}


def in_place(y: Tensor) -> Tensor:
    y[:, :4] += 1
    return y


FORMS = {
    "views": (lambda x, w: (x @ w).view(2, 2, 6).flatten(1).unsqueeze(0).squeeze(), "matmul view view view view"),
    "transposes": (lambda x, w: (x @ w).t().transpose(0, 1).movedim(0, 1), "matmul permute permute permute"),
    "copies": (lambda x, w: (x @ w).clone().contiguous().relu_(), "matmul relu"),
    "chunks": (lambda x, w: (x @ w).chunk(2, 1)[1], "matmul slice"),
    "splits": (lambda x, w: (x @ w).split([1, 2, 3], 1)[2], "matmul slice"),
    "unbind": (lambda x, w: (x @ w).unbind(1)[-1], "matmul select"),
    "whole_slice": (lambda x, w: (x @ w)[:, 0:6], "matmul"),
    "addmm": (lambda x, w: torch.addmm(w[0], x, w), "select addmm"),
    "linear": (lambda x, w: f.linear(x, w), "linear"),
    "scaled_addmm": (lambda x, w: torch.addmm(x, x, w, beta=0.5, alpha=2), "matmul mul add"),
    "factories": (lambda x, w: x @ w + torch.ones_like(x) + x.new_zeros(6), "matmul full add full add"),
    "dropout": (lambda x, w: f.dropout(x @ w, 0.5), "matmul dropout"),
    "none_dropped": (lambda x, w: f.dropout(x @ w, 0.0), "matmul"),
    "all_dropped": (lambda x, w: f.dropout(x @ w, 1.0), "matmul mul"),
    "in_place": (lambda x, w: in_place(x @ w), "matmul slice add slice_scatter slice slice_scatter"),
    "detached": (lambda x, w: (x @ w).detach() * w[:4], "matmul detach slice mul"),
}  # fmt: skip


def test_forms() -> None:
    found = check({name: function for name, (function, _) in FORMS.items()}, (4, 6))
    assert {name: " ".join(op.base for op in ops) for name, ops in found.items()} == {
        n: b for n, (_, b) in FORMS.items()
    }


def test_arguments_are_complete_and_plain() -> None:
    (op,) = check({"slice": lambda x, w: x[:, -2:] * w[0, 0]}, (4, 6))["slice"][:1]
    assert op.target == "aten.slice.Tensor"
    assert op.args == {"self": "%x", "dim": 1, "start": 4, "end": 6, "step": 1}
    (op,) = check({"fill": lambda x, w: (x * w[0, 0]).masked_fill(x > 0, float("-inf")).exp()}, (4, 6))["fill"][-2:-1]
    assert op.args["value"] == "float:-inf"


LABELS = torch.tensor([0, 2, 5, 1])
LOSSES = {
    "mean": (lambda x: f.cross_entropy(x, LABELS), "cross_entropy ratio"),
    "sum": (lambda x: f.cross_entropy(x, LABELS, reduction="sum"), "cross_entropy select"),
    "smooth": (lambda x: f.cross_entropy(x, LABELS, label_smoothing=0.1, ignore_index=2), "cross_entropy ratio"),
    "nll": (lambda x: f.nll_loss(f.log_softmax(x, 1), LABELS), "cross_entropy ratio"),
    "weighted": (lambda x: f.cross_entropy(x, LABELS, torch.arange(1.0, 7)), "arange cross_entropy ratio"),
    "each": (lambda x: f.cross_entropy(x, LABELS, reduction="none").mean(), "cross_entropy_loss mean"),
    "mse": (lambda x: f.mse_loss(x, x.detach() + 1), "detach add sub mul mean"),
    "l1": (lambda x: f.l1_loss(x, x.detach() + 1, reduction="sum"), "detach add sub abs sum"),
    "smooth_l1": (lambda x: f.smooth_l1_loss(x, x.detach() + 1), "detach add smooth_l1_loss mean"),
}


def test_losses() -> None:
    functions = {name: lambda x, w, loss=loss: loss(f.linear(x, w)) for name, (loss, _) in LOSSES.items()}
    found = check(functions, (4, 6))
    assert {name: " ".join(op.base for op in ops) for name, ops in found.items()} == {
        name: f"linear {bases}" for name, (_, bases) in LOSSES.items()
    }


def attention(causal: bool, masked: bool, grouped: bool = False):
    def run(x: Tensor, w: Tensor) -> Tensor:
        q = (x @ w).view(4, 2, 3, 6)
        k = q[:, :1] if grouped else q
        mask = (torch.arange(3) < 2).expand(4, 1, 3, 3) if masked else None
        return f.scaled_dot_product_attention(q, k, k, mask, 0.3, causal, enable_gqa=grouped)

    return run


def test_attention_with_dropout_is_taken_apart() -> None:
    cases = {"plain": (False, False), "causal": (True, False), "masked": (False, True), "grouped": (True, False, True)}
    found = check({name: attention(*case) for name, case in cases.items()}, (24, 6))
    assert [[op.base for op in ops].count("dropout") for ops in found.values()] == [1] * 4
    assert [op.args["index"] for ops in found.values() for op in ops if op.base == "dropout"] == [0, 1, 2, 3]
    assert all(op.base != "scaled_dot_product_attention" for ops in found.values() for op in ops)


class Layers(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(6, 5, 3, dropout=0.4, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output, state = self.cell(x)
        return output.sum() + (state[0] if isinstance(state, tuple) else state).sum() + output[:, -1]


def test_recurrent_layers_are_one_operator_each() -> None:
    found = check({kind.__name__: Layers(kind) for kind in (nn.LSTM, nn.GRU, nn.RNN)}, (2, 4, 6))
    for ops in found.values():
        bases = [op.base for op in ops]
        assert sum(base in ("lstm", "gru", "rnn_tanh") for base in bases) == 3
        assert bases.count("dropout") == 2


def test_norms_and_dropouts_of_every_kind() -> None:
    parts = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True),
        nn.BatchNorm2d(8, track_running_stats=False), nn.Dropout2d(0.3), nn.AlphaDropout(0.2), nn.PReLU(),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LayerNorm(16),
    )  # fmt: skip
    ops = check({"parts": nn.Sequential(parts, nn.Linear(16, 3))}, (3, 4, 5, 5))["parts"]
    stats = [op for op in ops if op.base == "batch_norm"]
    assert [op.args["running_mean"] for op in stats] == ["%parts.0.1.running_mean", None]
    assert stats[1].outputs[1:] == (None, None)
    assert [op.args["p"] for op in ops if op.base == "bernoulli"] == [0.7, 0.8]
