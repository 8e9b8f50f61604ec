"""A captured graph, operator by operator, against the plain module in float64 with the same random numbers."""

import copy
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from trine.capture.export import Captured, capture
from trine.capture.model import Model
from trine.capture.precision import to_float64
from trine.capture.reference import counted_random, in_float64
from trine.lower.clock import RandomClock, set_clock
from trine.lower.targets import run_operators

CLOCK = (7, 3, 1)  # seed, step, micro-batch


@dataclass(frozen=True)
class Difference:
    outputs: float
    loss: float
    gradients: float
    buffers: float
    num_draws: int


def difference(model: Model, training: bool = True) -> Difference:
    """The largest differences, relative to the largest output and to the norm of all gradients."""
    captured = capture(model, training=training, with_loss=training)
    graph = to_float64(captured.graph)
    module = copy.deepcopy(model.module).double().train(training)
    inputs = model.inputs.map(lambda t, dim, number: t.double() if t.is_floating_point() else t.clone())
    values = {name: _leaf(t) for name, t in captured.state(module).items()}
    leaves = {t.name: values[t.name] for t in graph.by_kind("parameter") if t.name not in captured.frozen}
    for leaf in leaves.values():
        leaf.requires_grad_()
    values |= captured.flatten(inputs)
    set_clock(RandomClock(*CLOCK))
    run_operators(graph.operators, values)
    with in_float64(), counted_random(*CLOCK):
        targets = inputs.targets if training and model.loss is None else {}
        output = module(*inputs.args, **inputs.kwargs, **targets)
        if training:
            loss = output.loss if model.loss is None else model.loss(output, inputs.targets)
    own = _outputs(output, captured.unflatten(values))
    draws = sum(op.target in ("trine.dropout", "trine.bernoulli") for op in graph.operators)
    if not training:
        return Difference(own, 0.0, 0.0, 0.0, draws)
    loss.backward()
    values[graph.loss].backward()
    buffers = dict(module.named_buffers())
    changed = [(buffers[o.target] - values[o.tensor]).abs().max().item() for o in graph.outputs if o.kind == "buffer"]
    away = abs(loss.item() - values[graph.loss].item())
    return Difference(own, away, _gradients(module, captured, leaves), max([0.0, *changed]), draws)


def _leaf(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().clone()
    return value.double() if value.is_floating_point() else value


def _outputs(plain: object, ours: object) -> float:
    left, structure = pytree.tree_flatten(plain)
    right, other = pytree.tree_flatten(ours)
    assert structure == other
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        worst = max(worst, ((a - b).abs().max() / a.abs().max().clamp(min=1e-30)).item())
    return worst


def _gradients(module: torch.nn.Module, captured: Captured, leaves: dict[str, torch.Tensor]) -> float:
    plain = dict(module.named_parameters(remove_duplicate=False))
    total = sum((p.grad**2).sum() for p in module.parameters() if p.grad is not None) ** 0.5
    worst = 0.0
    for name, leaf in leaves.items():
        expected = plain[captured.parameters[name][0]].grad
        zero = torch.zeros_like(leaf)
        a, b = (zero if g is None else g for g in (expected, leaf.grad))
        worst = max(worst, ((a - b).norm() / total).item())
    assert total > 0
    return worst
