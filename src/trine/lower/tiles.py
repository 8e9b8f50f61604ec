"""Taking boxes out of tiles and putting them back."""

from itertools import pairwise

import torch
from torch import Tensor

from trine.graph.part import Box, Part, indices, size
from trine.lower.registry import kernel


def _along(tensor: Tensor, dim: int, part: Part) -> Tensor:
    if len(part) == 1:
        low, high = part[0]
        return tensor if high - low == tensor.shape[dim] else tensor.narrow(dim, low, high - low)
    if not part:
        return tensor.narrow(dim, 0, 0)
    return torch.cat([tensor.narrow(dim, low, high - low) for low, high in part], dim)


@kernel
def take(input: Tensor, where: Box) -> Tensor:
    """The box at these positions of a tile; a view where every part is one interval."""
    for dim, part in enumerate(where):
        input = _along(input, dim, part)
    return input


def put(tensor: Tensor, where: Box, value: Tensor, *, add: bool) -> None:
    """Write (or add) a box into a tile that nobody else holds."""
    many = [dim for dim, part in enumerate(where) if len(part) != 1]
    if any(size(part) == 0 for part in where):
        return
    if not many:
        view = take(tensor, where)
        view.add_(value) if add else view.copy_(value)
        return
    if len(many) == 1 and (step := _step(where[many[0]])):
        dim, part = many[0], where[many[0]]
        length = part[0][1] - part[0][0]
        view = take(tensor, (*where[:dim], ((part[0][0], part[-1][1]),), *where[dim + 1 :])).unfold(dim, length, step)
        rows = value.unflatten(dim, (len(part), length)).movedim(dim + 1, -1)
        view.add_(rows) if add else view.copy_(rows)
        return
    index = torch.meshgrid(*(torch.from_numpy(indices(part)) for part in where), indexing="ij")
    tensor.index_put_(index, value, accumulate=add)


def _step(part: Part) -> int:
    """How far apart intervals of equal length start; 0 where they are irregular."""
    lengths, steps = {high - low for low, high in part}, {b[0] - a[0] for a, b in pairwise(part)}
    return steps.pop() if len(lengths) == len(steps) == 1 else 0


@kernel
def zeros(shape: list[int], dtype: str) -> Tensor:
    """What an engine without an index of a cut contributes."""
    return torch.zeros(shape, dtype=getattr(torch, dtype))
