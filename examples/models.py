"""Two models as a user has them, for the command line: `trine compare examples/models.py:cnn` (or `:lm`)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.second(functional.relu(self.norm(self.first(x)))))


class Net(nn.Module):
    """A residual CNN with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(Block(16), Block(16), nn.MaxPool2d(2), Block(16))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.blocks(self.stem(x)).mean((2, 3))))


class Language(nn.Module):
    """A causal transformer whose head is its embedding."""

    def __init__(self, words: int = 211, width: int = 32, heads: int = 4, length: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.zeros(1, length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        hidden = self.embedding(words) + self.position[:, : words.shape[1]]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def cnn() -> dict[str, Any]:
    """A batch of 8 images and their classes."""
    images, classes = torch.randn(8, 3, 48, 48), torch.randint(0, 10, (8,))
    return {"module": Net(), "inputs": images, "targets": classes, "loss": functional.cross_entropy}


def lm() -> dict[str, Any]:
    """A batch of 8 sentences; each word's target is the next one."""
    words = torch.randint(0, 211, (8, 24))

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), targets.flatten())

    return {"module": Language(), "inputs": words, "targets": words.roll(-1, 1), "loss": loss}


if __name__ == "__main__":
    print("trine compare examples/models.py:cnn")
