"""How far two results are from each other, relative to the norm of what is wanted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, isnan

import torch
from torch import Tensor

from trine.run.job import Reference

PIECE = 1 << 18  # elements
FARTHER, FLOOR = 4.0, 1e-6  # float32 may be that much farther from float64 than one engine's float32 is
Results = Mapping[tuple[str, int], Tensor]  # by the output's number and the micro-batch


@dataclass(frozen=True)
class Near:
    """How far a plan's first step in float32 is from one engine in float64, and how far one engine in float32 is.

    one_engine: of its run as it is; where that was not enough, also with weights moved by one unit in the last place.
    """

    distance: float
    one_engine: tuple[float, ...]

    @property
    def limit(self) -> float:
        return FARTHER * max(self.one_engine) + FLOOR

    @property
    def enough(self) -> bool:
        return self.distance <= self.limit


def distance(want: Reference, results: Results, gradients: Mapping[str, Tensor]) -> float:
    """The largest of the relative distances of the outputs, and of that of all gradients together."""
    found = [apart for _, apart in outputs_apart(want, results)]
    if want.gradients:
        total = torch.stack([g.norm() for g in want.gradients.values()]).norm()
        each = [apart(gradients[name], g) if name in gradients else g.norm() for name, g in want.gradients.items()]
        found.append(float(torch.stack(each).norm() / total.clamp(min=1e-30)))
    return largest(found)


def apart(a: Tensor, b: Tensor) -> Tensor:
    """Norm of the difference in float64; large tensors in pieces that stay in a cache."""
    if a.numel() <= PIECE or not (a.is_contiguous() and b.is_contiguous()) or a.is_complex() or b.is_complex():
        return (a.double() - b.double()).norm()
    pieces = zip(a.view(-1).split(PIECE), b.view(-1).split(PIECE), strict=True)
    return torch.stack([(p.double() - q.double()).norm() for p, q in pieces]).norm()


def largest(distances: Iterable[float]) -> float:
    """The largest; a NaN is infinitely far."""
    return max((float("inf") if isnan(value) else value for value in distances), default=0.0)


def outputs_apart(want: Reference, results: Results) -> list[tuple[str, float]]:
    """Where each output is, and how far from what is wanted; one that is missing, and one that is no tensor of the
    module's output, is infinitely far."""
    found = []
    for (target, m), value in results.items():
        wanted = want.outputs[m].get(int(target))
        far = float("inf") if wanted is None else relative(value, wanted)
        found.append((f"output {target}, micro-batch {m}", far))
    missing = [
        (f"output {number}, micro-batch {m}, which is missing", float("inf"))
        for m, leaves in enumerate(want.outputs)
        for number in leaves
        if (str(number), m) not in results and number not in want.unmade
    ]
    return found + missing


def by_name(values: Mapping[str, Tensor], names: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """Tensors of a graph by their names in the module, of which a tied weight has several."""
    return {name: values[tensor] for tensor, own in names.items() if tensor in values for name in own}


def relative(got: Tensor, want: Tensor, norm: float | None = None) -> float:
    """Norm of the difference over a norm, by default that of what is wanted; integers must be equal, and shapes that
    differ are infinitely far apart."""
    if got.shape != want.shape:
        return float("inf")
    if not want.is_floating_point():
        return 0.0 if torch.equal(got.to(want.dtype), want) else float("inf")
    scale = max(float(want.norm()) if norm is None else norm, 1e-30)
    far = float(apart(got, want))
    if isfinite(far) and isfinite(scale):
        return far / scale
    finite = torch.isfinite(want)
    if not torch.equal(torch.where(finite, 0.0, want).nan_to_num(1.0), torch.where(finite, 0.0, got).nan_to_num(1.0)):
        return float("inf")
    got, want = torch.where(finite, got, 0.0).double(), torch.where(finite, want, 0.0).double()
    return float((got - want).norm()) / max(float(want.norm()) if norm is None else norm, 1e-30)
