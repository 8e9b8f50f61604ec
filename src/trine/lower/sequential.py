"""Kernels of sequential points: local state, and what is made of all states (Chan et al. 1979 for mean and M2)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trine.lower.registry import kernel


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """(C,) → (1, C, 1, …) for broadcasting over (N, C, …)."""
    return values.view(1, -1, *(1,) * (like.dim() - 2))


class _State(torch.autograd.Function):
    """x (N, C, …) → (2, C): mean and M2 over everything but the channel; keeps x and the mean."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        count = x.numel() // x.shape[1] if x.shape[1] else 0
        dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        if count == 0:
            mean = m2 = torch.zeros(x.shape[1], dtype=dtype, device=x.device)
        elif x.is_contiguous() and x.dtype == dtype and x.device.type == "cpu":
            mean, var = torch.ops.aten.batch_norm_update_stats.default(x, None, None, 0.0)
            m2 = var * count
        else:
            var, mean = torch.var_mean(x.to(dtype), [d for d in range(x.dim()) if d != 1], correction=0)
            m2 = var * count
        ctx.save_for_backward(x, mean)
        ctx.count = count
        return torch.stack((mean, m2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, mean = ctx.saved_tensors
        if ctx.count == 0:
            return torch.zeros_like(x)
        slope = 2 * grad[1]
        constant = grad[0] / ctx.count - slope * mean
        return torch.addcmul(_per_channel(constant, x), x, _per_channel(slope, x)).to(x.dtype)


@kernel
def batch_norm_state(input: Tensor, num_lead: int) -> Tensor:
    """State of a tile: (1, …, 1, 2, C) with ``num_lead`` leading dimensions."""
    state: Tensor = _State.apply(input)  # type: ignore[no-untyped-call]
    return state.view((1,) * num_lead + state.shape)


class _Apply(torch.autograd.Function):
    """Normalise a tile by the statistics of all tiles; backward gives the tile's share for every state."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, state: Tensor, weight: Tensor | None, bias: Tensor | None, counts: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        flat = state.reshape(-1, 2, state.shape[-1])
        total = counts.sum()
        if len(counts) == 1:
            mean, m2 = flat[0, 0], flat[0, 1]
        else:
            weights = counts[:, None]
            mean = (weights * flat[:, 0]).sum(0) / total
            m2 = flat[:, 1].sum(0) + (weights * (flat[:, 0] - mean).square()).sum(0)
        var = m2 / total
        y = torch.nn.functional.batch_norm(x, mean.to(x.dtype), var.to(x.dtype), weight, bias, False, 0.0, eps)
        ctx.save_for_backward(x, flat, mean, var, weight, counts)
        ctx.eps, ctx.state_shape = eps, state.shape
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _mean: Any, _var: Any) -> tuple[Tensor | None, ...]:
        x, flat, mean, var, weight, counts = ctx.saved_tensors
        if not dy.numel():  # torch's kernel divides by the number of rows
            zeros = torch.zeros_like(mean).to(x.dtype)
            affine = [zeros if wanted else None for wanted in ctx.needs_input_grad[2:4]]
            return torch.zeros_like(x), torch.zeros(ctx.state_shape, dtype=flat.dtype), *affine, None, None
        dx, dw, db = torch.ops.aten.native_batch_norm_backward.default(
            dy, x, weight, mean.to(x.dtype), var.to(x.dtype), None, None, False, ctx.eps, [True, True, True]
        )
        scale = torch.rsqrt(var + ctx.eps)
        gain = scale if weight is None else weight * scale
        dmean, dvar = -gain * db, -0.5 * gain * scale * dw
        total = counts.sum()
        dstate = torch.stack(
            (
                counts[:, None] / total * (dmean + 2 * (flat[:, 0] - mean) * dvar),
                (dvar / total).expand(len(counts), -1),
            ),
            1,
        )
        affine = [grad if wanted else None for grad, wanted in zip((dw, db), ctx.needs_input_grad[2:4], strict=True)]
        return dx, dstate.view(ctx.state_shape), *affine, None, None


@kernel
def batch_norm_apply(
    input: Tensor, state: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float, counts: Sequence[int],
    local_dims: Sequence[int] = (), num_lead: int = 0,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Normalise by merged statistics: state (tiles…, 2, C), ``counts`` values per channel in each tile."""
    sizes = torch.tensor(counts, dtype=state.dtype, device=state.device)
    y, mean, var = _Apply.apply(input, state, weight, bias, sizes, eps)  # type: ignore[no-untyped-call]
    if running_mean is None or running_var is None:
        return y, None, None
    total = sum(counts)
    with torch.no_grad():
        new_mean = torch.lerp(running_mean, mean.to(running_mean.dtype), momentum)
        unbiased = var.to(running_var.dtype) * (total / max(total - 1, 1))
        new_var = torch.lerp(running_var, unbiased, momentum)
    return y, new_mean, new_var


@kernel
def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Batch norm in training on one engine: (y, new running mean, new running variance)."""
    count = input.numel() // max(input.shape[1], 1)
    if count > 1 and running_mean is not None and running_var is not None and input.dtype == running_var.dtype:
        old = running_mean.clone(), running_var.clone()  # autograd keeps them; a module's own may change meanwhile
        found = torch.ops.aten._native_batch_norm_legit_functional.default(
            input, weight, bias, *old, True, momentum, eps
        )
        return found[0], found[3], found[4]
    state = batch_norm_state(input, 0)
    return batch_norm_apply(input, state, weight, bias, running_mean, running_var, momentum, eps, [count])


@kernel
def vocab_state(input: Tensor, target: Tensor, num_lead: int, part: Sequence[Sequence[int]]) -> Tensor:
    """Logits of this tile's classes (N, c, d…) and targets (N, d…) → (1, …, 2, N, d…): log-sum-exp, target's logit."""
    input = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    if input.shape[1] == 0:
        lse = torch.full_like(target, float("-inf"), dtype=input.dtype)
        picked = torch.zeros_like(lse)
    else:
        lse = torch.logsumexp(input, 1)
        position, offset = torch.full_like(target, -1), 0
        for low, high in part:
            inside = (target >= low) & (target < high)
            position = torch.where(inside, target - low + offset, position)
            offset += high - low
        found = input.gather(1, position.clamp(min=0).unsqueeze(1)).squeeze(1)
        picked = torch.where(position >= 0, found, torch.zeros_like(found))
    state = torch.stack((lse, picked))
    return state.view((1,) * num_lead + state.shape)


@kernel
def vocab_merge(state: Tensor, target: Tensor, num_lead: int, ignore_index: int, num_classes: int) -> Tensor:
    """States (tiles…, 2, N, d…) → (2,): sum of −log p(target) and number of targets that are not ignored.

    Raises IndexError for a target that is no class, as torch's own loss does."""
    flat = state.reshape(-1, *state.shape[num_lead:])
    if target.device.type == "cpu" and bool(
        ((target != ignore_index) & ((target < 0) | (target >= num_classes))).any()
    ):
        raise IndexError(f"a target is out of bounds: there are {num_classes} classes")
    losses = torch.logsumexp(flat[:, 0], 0) - flat[:, 1].sum(0)
    keep = target != ignore_index
    return torch.stack((torch.where(keep, losses, torch.zeros_like(losses)).sum(), keep.sum().to(losses.dtype)))


@kernel
def group_norm_state(input: Tensor, groups: int, num_lead: int) -> Tensor:
    """Mean and sum of squared distances of a tile (n, c, …), for each sample and group: (1, …, 1, 2, n, groups)."""
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    flat = wide.reshape(input.shape[0], groups, -1)
    if flat.shape[-1] == 0:
        state = flat.new_zeros(2, *flat.shape[:2])
    else:
        variance, mean = torch.var_mean(flat, -1, correction=0)
        state = torch.stack((mean, variance * flat.shape[-1]))
    return state.view((1,) * num_lead + state.shape)


@kernel
def group_norm_apply(
    input: Tensor, state: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, num_lead: int, eps: float,
    counts: Sequence[int],
) -> Tensor:  # fmt: skip
    """Normalise a tile by the merged statistics of all tiles (tiles…, 2, n, groups); ``counts`` values in each."""
    flat = state.reshape(-1, *state.shape[num_lead:])
    sizes = torch.tensor(counts, dtype=state.dtype, device=state.device).view(-1, 1, 1)
    mean = (sizes * flat[:, 0]).sum(0) / sum(counts)
    m2 = flat[:, 1].sum(0) + (sizes * (flat[:, 0] - mean).square()).sum(0)
    gain = torch.rsqrt(m2 / sum(counts) + eps)
    each = input.shape[1] // groups
    gain, mean = (value.repeat_interleave(each, 1) for value in (gain, mean))  # (n, channels)
    gain = gain if weight is None else gain * weight
    shift = -mean * gain if bias is None else bias - mean * gain
    shape = (*gain.shape, *([1] * (input.dim() - 2)))
    return torch.addcmul(shift.view(shape), input, gain.view(shape)).to(input.dtype)
