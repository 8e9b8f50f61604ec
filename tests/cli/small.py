"""Models for the command line's tests, as a user's file has them."""

import torch
from torch import nn


class Branching(nn.Module):
    """No graph can hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        if x.mean() > -100:
            x = self.norm(x)
        return self.out(x)


class Broken(nn.Module):
    """Its forward pass raises."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        raise RuntimeError("no way forward")


def net(width: int = 6):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 5)), torch.randn(4, 3, 8, 8)


def branching():
    return Branching(), torch.randn(5, 4)


def broken():
    return {
        "module": Broken(),
        "inputs": torch.randn(4, 4),
        "targets": torch.randn(4, 3),
        "loss": nn.functional.mse_loss,
    }


def raises():
    raise ValueError("on purpose")
