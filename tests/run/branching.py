"""A small model that no graph can hold, for replicas in other processes: its forward pass decides by data."""

import torch
from torch import Tensor, nn

from trine.capture.model import Model, make_model

BATCH = 5


class Branching(nn.Module):
    """Convolution, batch norm, dropout, an `if` on data, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.drop, self.norm1, self.out = nn.Dropout(0.4), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        if x.mean() > -1:  # always so, but no export can know it
            x = nn.functional.dropout(x, 0.2, self.training) * 2
        return self.out(self.drop(self.norm1(x.mean((2, 3)))))


def branching(loss=nn.functional.cross_entropy, batch: int = BATCH) -> Model:
    """The model with a batch that two engines cannot halve."""
    torch.manual_seed(0)
    module = Branching()
    return make_model(module, torch.randn(batch, 3, 8, 8), torch.randint(0, 4, (batch,)), loss, name="branching")
