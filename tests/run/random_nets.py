"""Random convolutional nets and transformers, made from a number."""

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.model import Model, make_model


class Residual(nn.Module):
    """A branch beside what goes around it, added or joined and mixed."""

    def __init__(self, branch: nn.Module, channels: int, *, join: bool) -> None:
        super().__init__()
        self.branch, self.mix = branch, nn.Conv2d(2 * channels, channels, 1) if join else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        return x + y if self.mix is None else self.mix(torch.cat([x, y], 1))


class Gate(nn.Module):
    """Channels weighed by the mean or the maximum over all pixels."""

    def __init__(self, channels: int, *, largest: bool) -> None:
        super().__init__()
        self.pool = nn.AdaptiveMaxPool2d(1) if largest else nn.AdaptiveAvgPool2d(1)
        self.weigh = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.weigh(self.pool(x)))


def convolution(draw: Random, channels: int) -> tuple[nn.Module, int]:
    """Any convolution that leaves something of eight pixels."""
    groups = draw.choice([1, 1, *(n for n in (2, 3, channels) if channels % n == 0)])
    wide = groups * draw.choice([1, 2, 3])
    kernel, dilation = draw.choice([1, 2, 3, 3, 5]), draw.choice([1, 1, 2])
    padding = draw.randint(0, kernel)
    mode = draw.choice(["zeros", "zeros", "reflect", "replicate", "circular"]) if padding < 4 else "zeros"
    stride = draw.choice([1, 1, 2, 3])
    bias = draw.random() < 0.5
    return nn.Conv2d(channels, wide, kernel, stride, padding, dilation, groups, bias, mode), wide


def sampling(draw: Random, channels: int) -> tuple[nn.Module, int]:
    """Pools and resampling."""
    kernel = draw.choice([2, 3])
    return draw.choice([
        lambda: (nn.MaxPool2d(kernel, draw.choice([1, 2]), kernel // 2, ceil_mode=draw.random() < 0.5), channels),
        lambda: (nn.AvgPool2d(kernel, 2, kernel // 2, draw.random() < 0.5, draw.random() < 0.5), channels),
        lambda: (nn.AdaptiveAvgPool2d(draw.choice([3, 4, 7])), channels),
        lambda: (nn.Upsample(scale_factor=draw.choice([1.5, 2]), mode="bilinear"), channels),
        lambda: (nn.Upsample(scale_factor=2, mode=draw.choice(["nearest", "bicubic"])), channels),
        lambda: (nn.ConvTranspose2d(channels, 4, draw.choice([2, 3, 4]), 2, draw.choice([0, 1])), 4),
        lambda: (nn.Sequential(nn.Conv2d(channels, 8, 1), nn.PixelShuffle(2)), 2),
    ])()  # fmt: skip


def elementwise(draw: Random, channels: int) -> nn.Module:
    """Norms, activations, gates."""
    return draw.choice([
        lambda: nn.BatchNorm2d(channels), lambda: nn.BatchNorm2d(channels), lambda: nn.GroupNorm(1, channels),
        lambda: nn.InstanceNorm2d(channels, affine=True), nn.ReLU, nn.GELU, nn.Hardswish, lambda: nn.Dropout(0.2),
        lambda: Gate(channels, largest=draw.random() < 0.5),
    ])()  # fmt: skip


def convolutional(number: int) -> Model:
    """A net of five to twelve layers, with branches, for images or to images."""
    draw, layers = Random(number), list[nn.Module]()
    torch.manual_seed(number)
    size, channels, batch = (draw.randint(9, 20), draw.randint(9, 20)), 3, draw.choice([2, 3, 4])
    x = torch.randn(batch, 3, *size)
    probe = x
    for _ in range(draw.randint(5, 12)):
        kind = draw.choice(["convolution", "convolution", "elementwise", "sampling", "branch"])
        if kind == "branch":
            inner = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), elementwise(draw, channels))
            layer: nn.Module = Residual(inner, channels, join=draw.random() < 0.5)
            wide = channels
        elif kind == "elementwise":
            layer, wide = elementwise(draw, channels), channels
        else:
            layer, wide = (convolution if kind == "convolution" else sampling)(draw, channels)
        try:
            found = layer.eval()(probe)
        except RuntimeError:  # it does not fit here
            continue
        if min(found.shape[2:]) < 3 or max(found.shape[2:]) > 40:
            continue
        layers.append(layer.train())
        probe, channels = found.detach(), wide
    if draw.random() < 0.3:
        return make_model(nn.Sequential(*layers), x, torch.randn(probe.shape), functional.mse_loss)
    pool = draw.choice([nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(2), nn.Identity()])
    head = nn.Sequential(pool, nn.Flatten(), nn.Linear(pool(probe).flatten(1).shape[1], 5))
    return make_model(nn.Sequential(*layers, head), x, torch.randint(0, 5, (batch,)), functional.cross_entropy)


class Block(nn.Module):
    """Attention with shared keys and values or none shared, then a plain or gated multilayer perceptron."""

    def __init__(self, draw: Random, heads: int, each: int) -> None:
        super().__init__()
        width = heads * each
        self.heads, self.each, self.causal = heads, each, draw.random() < 0.5
        self.shared = draw.choice([n for n in (1, 2, 3) if heads % n == 0])
        norm: Callable[[int], nn.Module] = draw.choice([nn.LayerNorm, nn.RMSNorm])
        self.before, self.after = norm(width), norm(width)
        bias = draw.random() < 0.5
        self.query, self.out = nn.Linear(width, width, bias), nn.Linear(width, width, bias)
        self.key, self.value = (nn.Linear(width, self.shared * each, bias) for _ in range(2))
        hidden, self.gated, self.by_hand = draw.choice([11, 16]), draw.random() < 0.5, draw.random() < 0.3
        self.up, self.down = nn.Linear(width, hidden * (1 + self.gated)), nn.Linear(hidden, width)
        self.drop = nn.Dropout(draw.choice([0.0, 0.2]))

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, self.each).transpose(1, 2)

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.by_hand:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=True)
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / self.each**0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        return torch.softmax(scores, -1) @ v

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (
            self.split(self.query(y), self.heads),
            *(self.split(f(y), self.shared) for f in (self.key, self.value)),
        )
        x = x + self.drop(self.out(self.mixed(q, k, v).transpose(1, 2).flatten(2)))
        y = self.up(self.after(x))
        if self.gated:
            one, other = y.chunk(2, -1)
            y = functional.silu(one) * other
        else:
            y = functional.gelu(y)
        return x + self.drop(self.down(y))


class Reader(nn.Module):
    """Words, places, blocks, and a head that may be the words."""

    def __init__(self, draw: Random, words: int, length: int) -> None:
        super().__init__()
        heads, each = draw.choice([2, 3, 4, 6]), draw.choice([2, 4])
        self.words, self.places = nn.Embedding(words, heads * each), nn.Embedding(length, heads * each)
        self.blocks = nn.Sequential(*(Block(draw, heads, each) for _ in range(draw.randint(1, 3))))
        self.norm, self.head = nn.LayerNorm(heads * each), nn.Linear(heads * each, words, bias=False)
        if draw.random() < 0.5:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))


def transformer(number: int) -> Model:
    """A small language model."""
    draw = Random(number)
    torch.manual_seed(number)
    batch, length, words = draw.choice([2, 3, 4]), draw.randint(4, 9), draw.choice([17, 24])
    tokens, labels = torch.randint(0, words, (batch, length)), torch.randint(0, words, (batch, length))
    labels[0, length // 2 :] = -100

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return make_model(Reader(draw, words, length), tokens, labels, loss)
