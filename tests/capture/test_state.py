"""State that forward changes: buffers that are assigned or share a value, results from before, what is refused."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.errors import CaptureFailed
from trine.plan.build import build
from trine.run.job import Job
from trine.run.judge import judge
from trine.run.parallelize import parallelize


class Base(nn.Module):
    """From 7 numbers to 5, with buffers of 9."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 9), nn.Linear(9, 5)
        for name in ("mean", "other"):
            self.register_buffer(name, torch.zeros(9))
        self.mean: Tensor
        self.other: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.inner(self.one(x))))

    def inner(self, y: Tensor) -> Tensor:
        return y


class Assigned(Base):
    def inner(self, y: Tensor) -> Tensor:
        before = self.mean
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return y - self.mean + 0.5 * before


class AssignedTwice(Base):
    def inner(self, y: Tensor) -> Tensor:
        self.mean = self.mean + y.detach().mean(0)
        self.mean = 0.5 * self.mean
        return y - self.mean


class Shared(Base):
    def inner(self, y: Tensor) -> Tensor:
        now = y.detach().mean(0)
        self.mean.copy_(now)
        self.other.copy_(now)
        return y - self.mean


class Previous(Base):
    def inner(self, y: Tensor) -> Tensor:
        with torch.no_grad():
            self.other.copy_(self.mean)
            self.mean.add_(y.mean(0))
        return y - self.other


class Swapped(Base):
    def inner(self, y: Tensor) -> Tensor:
        self.mean, self.other = self.other + y.detach().mean(0), self.mean
        self.mean, self.other = self.other, self.mean
        return y - self.mean


class OfWeights(Base):
    def inner(self, y: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.copy_(self.one.bias)
        return y + self.mean


class Part(nn.Module):
    """What assigns is a part of a part."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 7), Assigned())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def model(module: nn.Module) -> Any:
    return make_model(module, torch.randn(4, 7), torch.randn(4, 5), nn.functional.mse_loss)


@pytest.mark.parametrize("wishes", [{"data": 2}, {"stages": 2}, {"tensor": (2,), "cuts": ("channel",)}], ids=str)
@pytest.mark.parametrize("kind", [Assigned, AssignedTwice, Shared, Previous, Swapped, OfWeights, Part])
def test_buffers_are_as_on_one_engine(kind: type[nn.Module], wishes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    job = Job(model(kind()), True, float64=True)
    verdict = judge(job, build(job.graph(), batch=4, **wishes), "lockstep", 3)
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"
    assert any(difference.kind == "buffers" for difference in verdict.differences)


def spread(module: nn.Module, x: Tensor) -> nn.Module:
    graph = capture(make_model(module, x), training=module.training, with_loss=False).graph
    return parallelize(module, build(graph, data=2, batch=len(x)), inputs=x)


class Before(Base):
    """A buffer is given back as it was."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        old = self.mean.clone()
        y = self.one(x)
        with torch.no_grad():
            self.mean.add_(y.mean(0))
        return self.two(torch.tanh(y)), old


def test_a_buffer_as_it_was() -> None:
    torch.manual_seed(0)
    module, x = Before().double(), torch.randn(4, 7, dtype=torch.float64)
    plain = copy.deepcopy(module)
    parallel = spread(module, x)
    for _ in range(2):
        for got, expected in zip(parallel(x), plain(x), strict=True):
            assert torch.allclose(got, expected, rtol=0, atol=1e-14)
    assert torch.allclose(module.mean, plain.mean, rtol=0, atol=1e-14)


class Grown(Base):
    def inner(self, y: Tensor) -> Tensor:
        self.mean = torch.cat([self.mean, self.mean])
        return y


class Counted(Base):
    def __init__(self) -> None:
        super().__init__()
        self.seen = {"calls": 0}

    def inner(self, y: Tensor) -> Tensor:
        self.seen["calls"] += 1
        return y / self.seen["calls"]


class Started(Base):
    def __init__(self) -> None:
        super().__init__()
        self.calls: int | None = None

    def inner(self, y: Tensor) -> Tensor:
        self.calls = 1 if self.calls is None else self.calls + 1
        return y / self.calls


class Hooked(Base):
    def inner(self, y: Tensor) -> Tensor:
        y.register_hook(lambda grad: 2 * grad)
        return y


class Checkpointed(Base):
    def inner(self, y: Tensor) -> Tensor:
        return checkpoint(torch.sin, y, use_reentrant=True)


class Strided(Base):
    def inner(self, y: Tensor) -> Tensor:
        return y.t().contiguous().as_strided((4, 9), (9, 1))


class MutatedView(Base):
    def inner(self, y: Tensor) -> Tensor:
        with torch.no_grad():
            y[:, :3].mul_(2)
        return y


class Casting(Base):
    """torch.export forgets a block without gradients inside of autocast."""

    def inner(self, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            fixed = torch.sin(y)
        return y * fixed


REFUSED: list[tuple[type[nn.Module], str]] = [
    (Grown, "another shape or type"), (Counted, "seen"), (Started, "calls"), (Hooked, "hook"),
    (Checkpointed, "reentrant"), (Strided, "as_strided"), (MutatedView, "no_grad"), (Casting, "inside autocast"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "said"), REFUSED)
def test_what_a_graph_would_lose_is_refused(kind: type[nn.Module], said: str) -> None:
    module = kind()
    with pytest.raises(CaptureFailed, match=said):
        capture(model(module), training=True, with_loss=True)
    assert getattr(module, "seen", {"calls": 0}) == {"calls": 0}
    assert module.mean.shape == (9,)


def test_a_module_with_a_backward_hook_is_refused() -> None:
    module = Base()
    module.one.register_full_backward_hook(lambda *_: None)
    with pytest.raises(CaptureFailed, match="backward hook"):
        capture(model(module), training=True, with_loss=True)
    assert capture(model(module), training=False, with_loss=False).graph.operators


def test_a_capture_under_no_grad_has_gradients() -> None:
    torch.manual_seed(0)

    class Fixed(Base):
        def inner(self, y: Tensor) -> Tensor:
            with torch.no_grad():
                fixed = torch.sin(y)
            return y * fixed

    with torch.no_grad():
        job = Job(model(Fixed()), True, float64=True)
        plan = build(job.graph(), data=2, batch=4)
    assert judge(job, plan, "lockstep", 2).equal


def test_attributes_that_change_between_calls_count() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(7, 9), nn.LeakyReLU(0.1), nn.Linear(9, 5)).double()
    x = torch.randn(4, 7, dtype=torch.float64)
    parallel = spread(module, x)
    assert torch.allclose(parallel(x), module(x), rtol=0, atol=1e-14)
    module[1].negative_slope = 0.7
    assert torch.allclose(parallel(x), module(x), rtol=0, atol=1e-14)
    module[1] = nn.Tanh()
    assert torch.allclose(parallel(x), module(x), rtol=0, atol=1e-14)
