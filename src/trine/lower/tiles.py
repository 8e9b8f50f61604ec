"""Taking boxes out of tiles and putting them back."""

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
    if not many:
        view = take(tensor, where)
        view.add_(value) if add else view.copy_(value)
        return
    if any(size(part) == 0 for part in where):
        return
    index = torch.meshgrid(*(torch.from_numpy(indices(part)) for part in where), indexing="ij")
    tensor.index_put_(index, value, accumulate=add)


@kernel
def zeros(shape: list[int], dtype: str) -> Tensor:
    """What an engine without an index of a cut contributes."""
    return torch.zeros(shape, dtype=getattr(torch, dtype))
