"""Kernels of operators that torch lacks in the form a tile needs."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from trine.lower import random  # noqa: F401  (it enters dropout and bernoulli)
from trine.lower.registry import kernel


@kernel
def addmm(bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """bias + input [rows, in] @ weight [in, out]."""
    return torch.addmm(bias, input, weight)


@kernel
def mean_part(
    input: Tensor, dims: Sequence[int], keepdim: bool, count: int, dtype: torch.dtype | None = None
) -> Tensor:
    """What a piece adds to a mean over ``count`` elements of the whole."""
    if dtype is None and input.dtype in (torch.float16, torch.bfloat16):  # the sum may be too large for it
        return (input.sum(list(dims), keepdim=keepdim, dtype=torch.float32) / count).to(input.dtype)
    return input.sum(list(dims), keepdim=keepdim, dtype=dtype) / count


@kernel
def linear_map(input: Tensor, dim: int, matrix: Sequence[Sequence[float]]) -> Tensor:
    """A matrix [output, input] applied along one dimension."""
    weights = torch.tensor(matrix, dtype=input.dtype, device=input.device)
    return torch.matmul(input.movedim(dim, -1), weights.t()).movedim(-1, dim)


def _numbers(part: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The indices of a part."""
    return torch.cat([torch.arange(low, high, device=device) for low, high in part])


@kernel
def resample_linear(
    input: Tensor, dim: int, num_in: int, num_out: int, scale: float | None, corners: bool,
    have: Sequence[Sequence[int]], make: Sequence[Sequence[int]],
) -> Tensor:  # fmt: skip
    """The outputs ``make`` of a linear resampling along one dimension, from the inputs ``have`` of the whole."""
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    there, wanted = _numbers(have, input.device), _numbers(make, input.device).to(dtype)
    lengths = torch.tensor([num_in, num_out], dtype=dtype, device=input.device)
    if corners:
        place = wanted * ((lengths[0] - 1) / (lengths[1] - 1) if num_out > 1 else 0.0)
    else:
        ratio = torch.tensor(1.0 / scale, dtype=dtype) if scale else lengths[0] / lengths[1]
        place = ((wanted + 0.5) * ratio - 0.5).clamp(min=0)
    low = place.floor().clamp(max=num_in - 1).long()
    high = (low + 1).clamp(max=num_in - 1)
    share = (place - low).clamp(0, 1).to(input.dtype).view([-1 if d == dim else 1 for d in range(input.dim())])
    first, second = (torch.searchsorted(there, at).clamp(max=len(there) - 1) for at in (low, high))
    return input.index_select(dim, first) * (1 - share) + input.index_select(dim, second) * share


@kernel
def resample_smooth(
    input: Tensor, kind: str, dim: int, num_in: int, num_out: int, scale: float | None, corners: bool,
    have: Sequence[Sequence[int]], make: Sequence[Sequence[int]],
) -> Tensor:  # fmt: skip
    """The outputs ``make`` of torch's own resampling along one dimension, from the inputs ``have`` of the whole: its
    matrix is what it makes of the unit matrix."""
    wide = input.dtype if input.dtype == torch.float64 else torch.float32
    units = torch.eye(num_in, dtype=wide, device=input.device)[None, None]
    matrix = getattr(torch.ops.aten, kind).default(units, [num_out, num_in], corners, scale, None)[0, 0]
    piece = matrix[_numbers(make, input.device)][:, _numbers(have, input.device)].to(input.dtype)
    return torch.matmul(input.movedim(dim, -1), piece.t()).movedim(-1, dim)


@kernel
def bin_max(input: Tensor, dim: int, bins: Sequence[Sequence[int]]) -> Tensor:
    """The maximum of each interval of one dimension."""
    found = [input.narrow(dim, low, high - low).max(dim).values for low, high in bins]
    return torch.stack(found, dim)


@kernel
def max_windows(
    input: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    first: Sequence[int], whole: Sequence[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Maxima of windows and their flat places in a plane of the shape ``whole``, in which the input begins at ``first``
    (below 0 where padding is part of it)."""
    num = len(kernel)
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[num - 1]
    sizes = (list(kernel), list(stride), list(padding), list(dilation))
    values, here = pool(input, *sizes, return_indices=True)  # type: ignore[operator]
    places, unit = torch.zeros_like(here), 1
    for dim in reversed(range(num)):
        length = input.shape[dim - num]
        at, here = here % length + first[dim], here // length
        steps = (dilation[dim] - 1 - at).clamp(min=0) // dilation[
            dim
        ]  # nothing but -inf: its first element, not padding
        places += (at + steps * dilation[dim] * (at < 0)) * unit
        unit *= whole[dim]
    return values, places


@kernel
def average_windows(
    input: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], counts: Sequence[Sequence[int]]
) -> Tensor:
    """Window sums divided by the product of one count for each dimension; one count may serve a whole dimension."""
    num = len(kernel)
    if num == 1:  # the one-dimensional pool takes no divisor
        flat = average_windows(input.unsqueeze(-2), (1, *kernel), (1, *stride), (0, *padding), ((1,), *counts))
        return flat.squeeze(-2)
    pool = functional.avg_pool2d if num == 2 else functional.avg_pool3d
    constant = 1
    for count in counts:
        constant *= count[0] if len(count) == 1 else 1
    result = pool(input, list(kernel), list(stride), list(padding), divisor_override=constant)
    for dim, count in enumerate(counts, input.dim() - num):
        if len(count) > 1:
            shape = [-1 if d == dim else 1 for d in range(input.dim())]
            result = result / torch.tensor(count, dtype=input.dtype, device=input.device).view(shape)
    return result


@kernel
def batch_norm_eval(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> Tensor:
    """Batch norm with given statistics."""
    return functional.batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)


@kernel
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """(sum of losses, sum of weights): the first divided by the second is PyTorch's mean."""
    losses = functional.cross_entropy(input, target, weight, None, ignore_index, None, "sum", label_smoothing)
    if target.is_floating_point():
        total = losses.new_tensor(input.numel() // input.shape[1 if input.dim() > 1 else 0])
    else:
        counted = target != ignore_index
        if weight is None:
            total = counted.sum()
        else:
            total = torch.where(counted, weight[torch.where(counted, target, 0)], 0).sum()
    dtype = torch.float64 if losses.dtype == torch.float64 else torch.float32
    return torch.stack((losses.to(dtype), total.to(dtype)))


@kernel
def ratio(state: Tensor) -> Tensor:
    """The mean that a state (sum, count) stands for."""
    return state[0] / state[1]


@kernel
def causal_mask(like: Tensor, rows: Sequence[Sequence[int]], num_columns: int) -> Tensor:
    """Which of the first columns the rows (global intervals) may see: those up to their own number."""
    return _numbers(rows, like.device).unsqueeze(-1) >= torch.arange(num_columns, device=like.device)


@kernel
def attention_block(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None,
    enable_gqa: bool | None, rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention of query rows to one block of keys: (weighted values, largest scores, sums of weights), not divided.
    Rows and columns are global intervals."""
    if query.dtype in (torch.float16, torch.bfloat16):  # sums over many keys, as in the whole
        query, key, value = query.float(), key.float(), value.float()
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    here = _numbers(columns, query.device) if columns else torch.empty(0, dtype=torch.int64, device=query.device)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(_numbers(rows, query.device).unsqueeze(-1) < here, float("-inf"))
    if attn_mask is not None:
        mask = attn_mask if attn_mask.shape[-1] == 1 else attn_mask.index_select(-1, here)
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if not len(here):
        nothing = scores.sum(-1)
        return query @ key.transpose(-2, -1) @ value, nothing + float("-inf"), nothing
    largest = scores.detach().amax(-1)
    weights = torch.exp(scores - torch.where(largest.isinf(), 0, largest).unsqueeze(-1))
    return weights @ value, largest, weights.sum(-1)


@kernel
def attention_merge(
    values: Sequence[Tensor], largest: Sequence[Tensor], weights: Sequence[Tensor], dtype: torch.dtype
) -> Tensor:
    """The attention that its blocks make together."""
    most = torch.stack(list(largest)).amax(0)
    most = torch.where(most.isinf(), 0, most)  # a row that sees nothing is zero, as in the whole
    factors = [torch.exp(each - most) for each in largest]
    total = sum((w * f for w, f in zip(weights, factors, strict=True)), torch.zeros_like(most))
    mixed = sum((v * f.unsqueeze(-1) for v, f in zip(values, factors, strict=True)), torch.zeros_like(values[0]))
    return (mixed / torch.where(total == 0, 1, total).unsqueeze(-1)).to(dtype)


@kernel
def embedding_part(weight: Tensor, indices: Tensor, words: Sequence[Sequence[int]], padding_idx: int) -> Tensor:
    """What a piece of the table (the rows ``words``) adds to the embedding: zero for a word that it lacks."""
    place, offset = torch.full_like(indices, -1), 0
    for low, high in words:
        place = torch.where((indices >= low) & (indices < high), indices - low + offset, place)
        offset += high - low
    if padding_idx >= 0:  # as in the whole, the padding word gets no gradient
        weight = torch.cat([weight, weight.new_zeros(1, weight.shape[1])])
        is_padding = (place >= 0) & (indices == padding_idx)
        found = functional.embedding(torch.where(place < 0, offset, place), weight)
        found = torch.where(is_padding.unsqueeze(-1), found.detach(), found)
    else:
        found = functional.embedding(place.clamp(min=0), weight)
    return torch.where((place >= 0).unsqueeze(-1), found, 0)


@kernel
def take_list(input: Tensor, dim: int, index: Sequence[int]) -> Tensor:
    """The input at a constant list of indices along one dimension."""
    return input.index_select(dim, torch.tensor(index, dtype=torch.int64, device=input.device))
