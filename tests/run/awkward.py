"""Small models, each with one thing that systems get wrong, and the plans that each can run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.model import Model, make_model

BATCH = 5
DATA: dict[str, Any] = {"data": 2}
SHARES: dict[str, Any] = {"data": 2, "shares": (3, 1)}
STAGES: dict[str, Any] = {"stages": 2, "micro_batches": 2}
THREE: dict[str, Any] = {"stages": 3, "micro_batches": 3}
FEATURES: dict[str, Any] = {"tensor": (2,), "cuts": ("channel",)}
HEADS: dict[str, Any] = {"tensor": (2,), "cuts": ("heads",)}
SPACE: dict[str, Any] = {"tensor": (3,), "cuts": ("height",), "shares": (3, 2, 1)}
ROWS: dict[str, Any] = {"tensor": (2,), "cuts": ("sequence",)}
MIXED: dict[str, Any] = {"data": 2, "stages": 2, "micro_batches": 2, "tensor": (2,), "cuts": ("channel",)}


class TiedEnds(nn.Module):
    """The first and the last layer are one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(29, 12)
        self.inner = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12), nn.LayerNorm(12))
        self.head = nn.Linear(12, 29, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.inner(self.words(tokens)))


class LongSkip(nn.Module):
    """What the first layer makes is read by the last one, over all stages between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.between = nn.Sequential(*(nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(4)))
        self.last = nn.Conv2d(12, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.cat([self.between(x), x], 1)).mean((2, 3))


class Norms(nn.Module):
    """Batch norms, one of which has no other row to average over but those of other tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.Conv2d(6, 8, 3, 2, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(8, momentum=0.3), nn.BatchNorm1d(8)])
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norms[0](self.one(x)))
        x = functional.relu(self.norms[1](self.two(x)))
        return self.head(self.norms[2](x.mean((2, 3))))


class HalfNorms(nn.Module):
    """Batch norms with a weight alone and with a bias alone."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 5, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.batch_norm(self.one(x), None, None, self.weight, None, True)
        return functional.batch_norm(self.two(x), None, None, None, self.bias, True).mean((2, 3))


class Drops(nn.Module):
    """Dropout of elements and of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1), nn.Linear(8, 5)
        self.elements, self.channels, self.last = nn.Dropout(0.3), nn.Dropout2d(0.4), nn.AlphaDropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.channels(functional.relu(self.two(self.elements(functional.relu(self.one(x))))))
        return self.head(self.last(x.mean((2, 3))))


class Odd(nn.Module):
    """33 hidden units and 3 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(12, 3, batch_first=True), nn.LayerNorm(12)
        self.mlp = nn.Sequential(nn.Linear(12, 33), nn.SiLU(), nn.Linear(33, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return (x + self.mlp(self.norm(x))).mean(1)[:, :5]


class Tiny(nn.Module):
    """Two rows at the end, for three tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 3, 2, 1) for _ in range(3)), nn.Conv2d(3, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))


class Unused(nn.Module):
    """A layer that nobody asks."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.idle, self.two = nn.Linear(7, 9), nn.Linear(9, 9), nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))


class Counting(nn.Module):
    """Buffers that forward changes: a counter, and a running largest value that the next step reads."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 8), nn.Linear(8, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("largest", torch.ones(8))
        self.calls: Tensor
        self.largest: Tensor

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        self.calls += 1
        self.largest.copy_(torch.maximum(0.9 * self.largest, x.detach().abs().amax(0)))
        return self.two(x / self.largest)


@dataclass
class Said:
    """What a model may answer."""

    logits: Tensor
    hidden: list[Tensor]


class Structured(nn.Module):
    """Dictionaries, tuples and lists, one in another."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 8), nn.Linear(8, 5)

    def forward(self, given: dict[str, Tensor], scale: tuple[Tensor, Tensor]) -> dict[str, Any]:
        x = self.one(given["a"] * scale[0] + given["b"] * scale[1])
        return {"logits": self.two(torch.relu(x)), "more": (x, [x.sum(1), None])}


class Integers(nn.Module):
    """Whole numbers in, of two types; some are looked up, some are compared, some are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds, self.head = nn.Embedding(19, 8), nn.Embedding(3, 8), nn.Linear(8, 5)

    def forward(self, tokens: Tensor, kinds: Tensor) -> Tensor:
        mask = (tokens != 0).unsqueeze(-1)
        x = self.words(tokens) + self.kinds(kinds.long())
        return self.head((x * mask).sum(1) / mask.sum(1).clamp(min=1))


class Mixing(nn.Module):
    """A reshape that mixes batch and channels: rows of one are in the other for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        x = torch.relu(self.one(x)).reshape(batch * 3, 2, height, width)
        x = torch.relu(self.two(x)).view(batch, 12, height, width)
        return self.head(x.mean((2, 3)))


class InPlace(nn.Module):
    """Operators in place, on views of what is used later."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        x[:, :2].mul_(2.0)
        x[:, 2:, 1:3] += 1.0
        x.narrow(2, 0, 4).clamp_(min=-0.5)
        y = x.transpose(2, 3)
        y[..., 0].zero_()
        return self.two(functional.relu_(x)).mean((2, 3))


class Cube(torch.autograd.Function):
    """A backward pass of its own, which the graph cannot show."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class OwnFunction(nn.Module):
    """A custom autograd function in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(Cube.apply(self.one(x)))


class Branching(nn.Module):
    """An if on data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 5), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) if x.sum() > 0 else self.two(x)


def classes() -> Tensor:
    """A class for each row."""
    return torch.randint(0, 5, (BATCH,))


def images(height: int = 8, channels: int = 3) -> Tensor:
    """A batch of images."""
    return torch.randn(BATCH, channels, height, 6)


def tied_ends() -> Model:
    """Padding is uneven: a mean over tokens weighs rows by their tokens."""
    labels = torch.randint(0, 29, (BATCH, 6))
    labels[0, 1:], labels[2, 3:] = -100, -100

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return make_model(TiedEnds(), torch.randint(0, 29, (BATCH, 6)), labels, loss)


def structured() -> Model:
    """Inputs and results in structures."""
    given = {"a": torch.randn(BATCH, 7), "b": torch.randn(BATCH, 7)}
    scale = (torch.randn(BATCH, 1), torch.randn(BATCH, 1))

    def loss(output: dict[str, Any], target: Tensor) -> Tensor:
        return functional.cross_entropy(output["logits"], target) + output["more"][0].square().mean()

    return make_model(Structured(), (given, scale), classes(), loss)


def integers() -> Model:
    """One input is of a small type."""
    tokens = torch.randint(0, 19, (BATCH, 6))
    tokens[1, 2:] = 0
    kinds = torch.randint(0, 3, (BATCH, 6), dtype=torch.uint8)
    return make_model(Integers(), (tokens, kinds), classes(), functional.cross_entropy)


def plain(module: Callable[[], nn.Module], inputs: Callable[[], Tensor]) -> Callable[[], Model]:
    """A classifier."""
    return lambda: make_model(module(), inputs(), classes(), functional.cross_entropy)


def rows() -> Tensor:
    """A batch of vectors."""
    return torch.randn(BATCH, 7)


CASES: dict[str, tuple[Callable[[], Model], tuple[dict[str, Any], ...]]] = {
    "tied weights in the first and the last stage": (tied_ends, (SHARES, STAGES, THREE, FEATURES, MIXED)),
    "a skip over several stages": (plain(LongSkip, images), (STAGES, THREE, SPACE, MIXED)),
    "batch norm": (plain(Norms, images), (DATA, SHARES, STAGES, SPACE, FEATURES, MIXED)),
    "batch norm with half of its parameters": (plain(HalfNorms, images), (SHARES, SPACE, FEATURES)),
    "dropout": (plain(Drops, images), (DATA, SHARES, STAGES, SPACE, FEATURES, MIXED)),
    "33 units and 3 heads": (plain(Odd, lambda: torch.randn(BATCH, 7, 12)), (HEADS, FEATURES, ROWS, STAGES)),
    "fewer rows than tiles": (plain(Tiny, images), (SPACE, {"tensor": (8,), "cuts": ("height",)})),
    "fewer rows than engines": (plain(Unused, rows), ({"data": 5}, {"stages": 2, "micro_batches": 5})),
    "a parameter that is not used": (plain(Unused, rows), (DATA, STAGES, FEATURES, MIXED)),
    "a buffer that forward changes": (plain(Counting, rows), (DATA, SHARES, FEATURES)),
    "structured inputs and results": (structured, (SHARES, STAGES, FEATURES, MIXED)),
    "integer inputs": (integers, (SHARES, STAGES, FEATURES)),
    "a reshape that mixes batch and channels": (
        plain(Mixing, lambda: images(8, 4)), (DATA, SHARES, STAGES, SPACE, FEATURES),
    ),
    "in place on views": (plain(InPlace, images), (SHARES, STAGES, SPACE, FEATURES)),
}  # fmt: skip
