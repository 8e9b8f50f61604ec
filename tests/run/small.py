"""Tiny models: a convolutional net with batch norm and a residual, a language model with tied weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZE, WORDS = 12, 11


class Net(nn.Module):
    """Images (N, 3, 12, 12) → scores (N, 5)."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        x = x + self.inner(x)
        return self.head(self.dropout(x.mean((2, 3))))


class Language(nn.Module):
    """Words (N, T) → a dictionary of scores (N, T, 11); the embedding is the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.query, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        x = self.embed(words) * scale
        q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.query(self.norm(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return {"scores": self.head(x), "hidden": x}


def net(seed: int = 0, dropout: float = 0.0) -> Net:
    torch.manual_seed(seed)
    return Net(dropout).double()


def language(seed: int = 0) -> Language:
    torch.manual_seed(seed)
    return Language().double()


def images(count: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 5, (count,), generator=generator)


def words(count: int, seed: int = 1, length: int = 6) -> Tensor:
    return torch.randint(0, WORDS, (count, length), generator=torch.Generator().manual_seed(seed))


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of two dictionaries of tensors with the same keys."""
    assert list(one) == list(other)
    return max(float((a.double() - other[name].double()).abs().max()) for name, a in one.items())
