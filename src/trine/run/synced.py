"""Batch norm over all replicas' rows, exact for unequal numbers of them: (n, mean, M2) of each are gathered and merged
(Chan et al. 1979), in the forward pass and, transposed, in the backward pass."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d

from trine.cost.collectives import ring_bytes
from trine.lower.sequential import batch_norm_apply, batch_norm_state


@dataclass
class Together:
    """The replicas.  ``group``: for these sums alone; ``idle``: this one has no row of its own in this step."""

    num_engines: int
    group: dist.ProcessGroup | None = None
    idle: bool = False
    bytes_sent: int = 0

    def gather(self, tensor: Tensor) -> Tensor:
        """(…) of each replica → (replicas, …)."""
        result = tensor.new_empty((self.num_engines, *tensor.shape))
        dist.all_gather(list(result), tensor.contiguous(), group=self.group)
        self.bytes_sent += (self.num_engines - 1) * tensor.nbytes
        return result

    def own(self, grad: Tensor) -> Tensor:
        """The transpose: the sum over all replicas of the part that belongs to this one."""
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=self.group)
        self.bytes_sent += ring_bytes(self.num_engines, grad.nbytes)
        return total[dist.get_rank(self.group)]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, together: Together) -> Tensor:
        ctx.together = together
        return together.gather(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.together.own(grad), None


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Takes the place of a BatchNorm1d, 2d or 3d: its parameters and buffers stay as they are."""

    together: Together

    def _check_input_dim(self, input: Tensor) -> None:
        """Whatever the original took."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.num_batches_tracked is not None and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        counted = input[:0] if self.together.idle else input
        state: Tensor = _Gather.apply(batch_norm_state(counted, 0), self.together)  # type: ignore[no-untyped-call]
        count = torch.tensor([counted.numel() // input.shape[1]])
        counts = self.together.gather(count).view(-1).tolist()
        result, mean, variance = batch_norm_apply(
            input, state, self.weight, self.bias, self.running_mean, self.running_var, momentum, self.eps, counts,
            num_lead=1,
        )  # fmt: skip
        if mean is not None and variance is not None and self.running_mean is not None and self.running_var is not None:
            self.running_mean.copy_(mean)
            self.running_var.copy_(variance)
        return result


def synchronised(module: nn.Module, together: Together) -> None:
    """Make every batch norm of a module one over all replicas, in place."""
    for part in module.modules():
        if type(part) in (BatchNorm1d, BatchNorm2d, BatchNorm3d):
            part.__class__ = SyncedBatchNorm
            part.together = together
