"""A small convolutional net and a small language model, with everything in them that is hard to tile."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.model import Model, make_model
from trine.plan.build import build
from trine.plan.plan import Plan
from trine.run.job import Job

BATCH = 5  # in four micro-batches: 2, 1, 1, 1


class Squeeze(nn.Module):
    """Channels are weighed by what all pixels say."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 3, 1), nn.Conv2d(3, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.up(functional.silu(self.down(functional.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(gate)


class Net(nn.Module):
    """Batch norm, residual, depthwise, squeeze, overlapping max-pool, cat, dropout, adaptive pool from 3 rows to 2."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.wide = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), Squeeze(8))
        self.more = nn.Conv2d(8, 4, 1)
        self.down = nn.Conv2d(12, 6, 3, 2, 1)
        self.last = nn.BatchNorm2d(6)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = x + self.wide(x)
        x = self.last(self.down(torch.cat([x, self.more(x)], 1)))
        x = functional.adaptive_avg_pool2d(functional.relu(x), 2)
        return self.head(self.drop(torch.flatten(x, 1)))


class Dense(nn.Module):
    """From image to image: group and instance norm over space, windows laid out and folded, transposed convolution,
    cubic resampling, pixel shuffling, maxima over one bin and over several."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.groups = nn.Conv2d(3, 6, 3, 2, 1), nn.GroupNorm(3, 6)
        self.windows, self.fold = nn.Unfold(3, padding=1, stride=2), nn.Fold((6, 6), 3, padding=1, stride=2)
        self.mix, self.each = nn.Conv1d(54, 54, 1), nn.InstanceNorm2d(6, affine=True)
        self.up, self.bend = nn.ConvTranspose2d(12, 4, 3, 2, 1, output_padding=1), nn.PReLU(4)
        self.gate, self.last = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 12, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        x = functional.silu(self.groups(self.stem(x)))
        x = torch.cat([x, self.each(self.fold(self.mix(self.windows(x))))], 1)
        x = self.bend(self.up(x))
        x = x * torch.sigmoid(self.gate(functional.adaptive_max_pool2d(x, 1)))
        x = x + functional.interpolate(functional.adaptive_max_pool2d(x, (5, 7)), x.shape[2:])
        x = functional.interpolate(x, scale_factor=0.5, mode="bicubic")
        x = functional.pixel_shuffle(self.last(x), 2)
        return functional.interpolate(x, size=(9, 10), mode="bilinear", antialias=True)


class Block(nn.Module):
    """Packed queries, keys and values of three heads, dropout inside the attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 20), nn.GELU(), nn.Linear(20, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        parts = self.packed(self.before(x)).split(width, 2)
        q, k, v = (part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.after(x))


class Language(nn.Module):
    """The output head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(37, 12), nn.Parameter(torch.randn(7, 12))
        self.drop, self.blocks = nn.Dropout(0.1), nn.Sequential(Block(12, 3), Block(12, 3))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 37, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.drop(self.words(tokens) + self.places))))


class Whole(nn.Module):
    """No statistics, no averages: with whole numbers in it every sum is exact in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.three, self.head = nn.Conv2d(6, 4, 3, 2, 1), nn.Linear(4 * 3 * 3, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.one(x)), 3, 2, 1)
        x = x + self.two(x)
        return self.head(torch.flatten(functional.relu(self.three(x)), 1))


def net() -> Model:
    """The convolutional net."""
    torch.manual_seed(0)
    return make_model(Net(), torch.randn(BATCH, 3, 12, 12), torch.randint(0, 7, (BATCH,)), functional.cross_entropy)


def language() -> Model:
    """The language model; labels have very uneven padding, so that samples and tokens weigh differently."""
    torch.manual_seed(0)
    tokens, labels = torch.randint(0, 37, (BATCH, 7)), torch.randint(0, 37, (BATCH, 7))
    labels[0, 2:], labels[3, 1:] = -100, -100

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return make_model(Language(), tokens, labels, loss)


def whole() -> Model:
    """Weights and inputs are whole numbers; the loss is a sum."""
    torch.manual_seed(0)
    module = Whole()
    for parameter in module.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).float()
    inputs, targets = torch.randint(-2, 3, (BATCH, 3, 12, 12)).float(), torch.randint(-2, 3, (BATCH, 5)).float()
    return make_model(module, inputs, targets, lambda output, factor: (output * factor).sum())


def dense() -> Model:
    """The net from image to image."""
    torch.manual_seed(0)
    return make_model(Dense(), torch.randn(BATCH, 3, 12, 12), torch.randn(BATCH, 3, 9, 10), functional.mse_loss)


MODELS: dict[str, Callable[[], Model]] = {"net": net, "dense": dense, "language": language, "whole": whole}

SPACE = {
    "one engine": {},
    "data": {"data": 2},
    "data 3:1": {"data": 2, "shares": (3, 1)},
    "gpipe": {"stages": 2, "micro_batches": 4, "schedule": "gpipe"},
    "1f1b": {"stages": 2, "micro_batches": 4},
    "three stages": {"stages": 3, "micro_batches": 2},
    "tiles": {"tensor": (2,), "cuts": ("height",)},
    "tiles 3:2:1": {"tensor": (3,), "cuts": ("height",), "shares": (3, 2, 1)},
    "tiles 2 x 2": {"tensor": (2, 2), "cuts": ("height", "width")},
    "features": {"tensor": (2,), "cuts": ("channel",)},
    "features 3:2:1": {"tensor": (3,), "cuts": ("channel",), "shares": (3, 2, 1)},
    "tiles x features": {"tensor": (2, 2), "cuts": ("height", "channel")},
    "data x tiles": {"data": 2, "tensor": (2,), "cuts": ("height",)},
    "data x features": {"data": 2, "tensor": (2,), "cuts": ("channel",)},
    "stages x tiles": {"stages": 2, "micro_batches": 2, "tensor": (2,), "cuts": ("height",)},
    "stages x features": {"stages": 2, "micro_batches": 4, "tensor": (2,), "cuts": ("channel",)},
    "zero": {"data": 3, "zero": 1},
    "zero x features": {"data": 2, "tensor": (2,), "cuts": ("channel",), "zero": 1},
    "zero x stages": {"data": 2, "stages": 2, "micro_batches": 2, "zero": 1},
}  # fmt: skip
WORDS = {"height": "sequence", "channel": "heads"}
SEQUENCE: dict[str, dict[str, Any]] = {
    name: {key: tuple(WORDS[cut] for cut in value) if key == "cuts" else value for key, value in wishes.items()}
    for name, wishes in SPACE.items()
    if "width" not in wishes.get("cuts", ())
}
SEQUENCE["channel"] = {"tensor": (2,), "cuts": ("channel",)}
PLANS: dict[str, dict[str, dict[str, Any]]] = {"net": SPACE, "dense": SPACE, "language": SEQUENCE, "whole": SPACE}
NAMES = [(model, plan) for model, plans in PLANS.items() for plan in plans]

HALOED = [
    ("net", "tiles"), ("net", "tiles 3:2:1"), ("net", "tiles 2 x 2"), ("net", "data x tiles"),
    ("net", "stages x tiles"), ("net", "tiles x features"), ("dense", "tiles 3:2:1"), ("dense", "tiles 2 x 2"),
    ("whole", "tiles 3:2:1"), ("language", "tiles"),
]  # fmt: skip


@cache
def job(model: str, training: bool = True) -> Job:
    """A job in float64; its captures are shared by all tests of a process."""
    return Job(MODELS[model](), training, float64=True)


def plan(model: str, name: str, training: bool = True) -> Plan:
    """A plan by name."""
    wishes = PLANS[model][name]
    made = job(model, training)
    return build(made.graph_for(wishes.get("micro_batches", 1)), batch=BATCH, **wishes)
