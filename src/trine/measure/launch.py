"""What it costs to start an operator, forward and backward, and a segment, however small the work."""

from collections.abc import Callable

import torch
from torch.autograd.graph import get_gradient_edge

from trine.cost.profile import Launch
from trine.measure.timing import time_concurrently

NUM_OPERATORS = 100
NUM_SEGMENTS = 20


def measure_launch(concurrency: int = 1, *, max_s: float = 0.25) -> Launch:
    """Launch costs while ``concurrency`` threads start operators at once: Python lets one of them at a time.

    A chain of tiny operators gives the forward and, by its gradient, the backward; the same operators as one segment
    each (inputs detached, gradient edge kept, ``torch.autograd.grad`` called) give what a segment adds.
    """

    def timed(make: Callable[[], Callable[[], object]]) -> float:
        return time_concurrently([make() for _ in range(concurrency)], grad=True, max_s=max_s)

    forward_s = timed(_forward) / NUM_OPERATORS
    both_s = timed(_forward_backward) / NUM_OPERATORS
    backward_s = max(both_s - forward_s, 0.0)
    segment_s = max(timed(_segments) / NUM_SEGMENTS - forward_s - backward_s, 0.0)
    return Launch(concurrency=concurrency, forward_s=forward_s, backward_s=backward_s, segment_s=segment_s)


def _chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(NUM_OPERATORS):
        x = torch.relu(x)
    return x


def _forward() -> Callable[[], object]:
    x = torch.ones(16, requires_grad=True)
    return lambda: _chain(x)


def _forward_backward() -> Callable[[], object]:
    x, gradient = torch.ones(16, requires_grad=True), torch.ones(16)
    return lambda: torch.autograd.grad(_chain(x), x, gradient)


def _segments() -> Callable[[], object]:
    first, gradient = torch.ones(16), torch.ones(16)

    def run() -> torch.Tensor:
        kept, x, g = [], first, gradient
        for _ in range(NUM_SEGMENTS):
            given = x.detach().requires_grad_()
            out = torch.relu(given)
            kept.append((given, get_gradient_edge(out)))
            x = out.detach()
        for given, edge in reversed(kept):
            (g,) = torch.autograd.grad((edge,), (given,), (g,))
        return g

    return run
