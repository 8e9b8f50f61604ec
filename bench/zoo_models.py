"""Models of torch itself for the sweep: recurrent nets, torch's own transformer, and sound through transposed
convolutions.  ``bench/zoo_models.py:NAME`` is a MODEL of the command line."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH, STEPS, WIDTH = 4, 9, 12


class Tagger(nn.Module):
    """A recurrent net of two layers, in both directions, that tags every step."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.words, self.net = nn.Embedding(50, WIDTH), kind(WIDTH, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 7)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.net(self.words(words))[0])


class Sound(nn.Module):
    """Strided convolutions down, transposed ones up, from samples to samples."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(1, 8, 8, 4, 2), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv1d(8, 16, 4, 2, 1))
        self.middle = nn.Sequential(nn.SiLU(), nn.Conv1d(16, 16, 3, padding=2, dilation=2), nn.BatchNorm1d(16))
        self.up = nn.Sequential(
            nn.ConvTranspose1d(16, 8, 4, 2, 1), nn.InstanceNorm1d(8, affine=True), nn.LeakyReLU(0.2),
            nn.ConvTranspose1d(8, 1, 8, 4, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        return torch.tanh(self.up(x + self.middle(x)))


def tagged(kind: type[nn.LSTM] | type[nn.GRU]) -> dict[str, Any]:
    """A tagger with words and tags."""
    words, tags = torch.randint(0, 50, (BATCH, STEPS)), torch.randint(0, 7, (BATCH, STEPS))
    return {
        "module": Tagger(kind), "inputs": words, "targets": tags,
        "loss": lambda output, target: functional.cross_entropy(output.flatten(0, 1), target.flatten()),
    }  # fmt: skip


def lstm() -> dict[str, Any]:
    """Long short-term memory."""
    return tagged(nn.LSTM)


def gru() -> dict[str, Any]:
    """Gated recurrent units."""
    return tagged(nn.GRU)


def transformer() -> dict[str, Any]:
    """torch.nn.Transformer: encoder and decoder."""
    module = nn.Transformer(WIDTH, 3, 2, 2, 20, batch_first=True)
    inputs = {"src": torch.randn(BATCH, STEPS, WIDTH), "tgt": torch.randn(BATCH, STEPS - 2, WIDTH)}
    return {
        "module": module,
        "inputs": inputs,
        "targets": torch.randn(BATCH, STEPS - 2, WIDTH),
        "loss": functional.mse_loss,
    }


def audio() -> dict[str, Any]:
    """Sound in, sound out."""
    x = torch.randn(BATCH, 1, 130)
    return {"module": Sound(), "inputs": x, "targets": torch.randn(BATCH, 1, 128), "loss": functional.mse_loss}
