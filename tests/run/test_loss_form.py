"""Losses under micro-batches: what adds up to the loss of the whole batch gives it, anything else is refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trine.capture.model import make_model
from trine.errors import BadInput
from trine.plan.build import build
from trine.run.job import Job
from trine.run.training import train_step

Loss = Callable[[Tensor, Tensor], Tensor]


class Two(nn.Module):
    """Two linear layers, and a number that may go into the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(7, 9), nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))


def masked(output: Tensor, target: Tensor) -> Tensor:
    mask = (target > 0.3).double()
    return ((output - target).square() * mask).sum() / mask.sum()


def scale(output: Tensor, target: Tensor) -> Tensor:
    mask = target > -0.5
    return 2.0 * ((output - target).abs() * mask).sum() / mask.sum()


def squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square()


SUMS: dict[str, Loss] = {
    "mean": functional.mse_loss,
    "sum": lambda o, t: squares(o, t).sum(),
    "sum over the batch's size": lambda o, t: squares(o, t).sum() / len(o),
    "sum over all elements": lambda o, t: squares(o, t).sum() / o.numel(),
    "mean over rows, then a sum": lambda o, t: squares(o, t).mean(0).sum(),
    "sum over rows, then a mean": lambda o, t: squares(o, t).sum(0).mean(),
    "mean times the batch's size": lambda o, t: squares(o, t).mean() * len(o),
    "half of a sum": lambda o, t: 0.5 * squares(o, t).sum(),
    "two means": lambda o, t: squares(o, t).mean() + 0.1 * (o - t).abs().mean(),
    "a mean less a number": lambda o, t: squares(o, t).mean() - 0.1,
    "batchmean": lambda o, t: functional.kl_div(o.log_softmax(1), t.softmax(1), reduction="batchmean"),
    "masked": masked, "masked, counted in integers": scale,
    "dot": lambda o, t: torch.dot((o - t).flatten(), (o - t).flatten()) / len(o),
    "classes": lambda o, t: functional.cross_entropy(o, t.argmax(1)),
    "classes, summed, over the size": lambda o, t: functional.cross_entropy(o, t.argmax(1), reduction="sum") / len(o),
    "classes twice": lambda o, t: functional.cross_entropy(o, t.argmax(1)) + functional.cross_entropy(-o, t.argmax(1)),
}  # fmt: skip

OTHERS: dict[str, Loss] = {
    "root": lambda o, t: squares(o, t).mean().sqrt(),
    "product of means": lambda o, t: squares(o, t).mean() * (o - t).abs().mean(),
    "quotient of means": lambda o, t: squares(o, t).mean() / o.square().mean(),
    "relative error": lambda o, t: squares(o, t).sum() / o.square().sum(),
    "logarithm": lambda o, t: squares(o, t).sum().log(),
    "largest": lambda o, t: squares(o, t).max(),
    "sum and mean": lambda o, t: squares(o, t).sum() + (o - t).abs().mean(),
    "sum less a number": lambda o, t: squares(o, t).sum() - 0.1,
    "norm": lambda o, t: (o - t).norm(),
    "sum over the square of the size": lambda o, t: squares(o, t).sum() / len(o) ** 2,
}


def step_of(loss: Loss, batch: int, micro_batches: int) -> tuple[float, float, float]:
    """Loss and the largest difference of weights after two steps, under a plan and on one engine's whole batch."""
    torch.manual_seed(0)
    x, target = torch.randn(batch, 7).double(), torch.randn(batch, 5).double()
    torch.manual_seed(1)
    module = Two().double()
    torch.manual_seed(1)
    plain = Two().double()
    make = lambda parameters: torch.optim.SGD(parameters, lr=0.01)  # noqa: E731
    job = Job(make_model(module, x, target, loss), True)
    plan = build(job.graph_for(micro_batches), stages=2, micro_batches=micro_batches, batch=batch)
    optimizer = make(plain.parameters())
    with train_step(module, plan, loss=loss, optimizer=make, inputs=x, targets=target) as step:
        for _ in range(2):
            got = float(step((x, target)))
            optimizer.zero_grad()
            value = loss(plain(x), target)
            value.backward()
            optimizer.step()
        state = step.state_dict()
    apart = max(float((state[name] - p).abs().max()) for name, p in plain.state_dict().items())
    return got, float(value.detach()), apart


@pytest.mark.parametrize(("batch", "micro_batches"), [(4, 2), (5, 2), (4, 4)], ids=["even", "uneven", "rows"])
@pytest.mark.parametrize("name", SUMS)
def test_it_is_the_loss_of_the_whole_batch(name: str, batch: int, micro_batches: int) -> None:
    got, expected, apart = step_of(SUMS[name], batch, micro_batches)
    assert got == pytest.approx(expected, rel=1e-12)
    assert apart < 1e-12


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_add_up_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="neither a mean nor a sum"):
        step_of(OTHERS[name], 4, 2)


def test_a_penalty_on_weights_beside_a_mean_counts_once() -> None:
    torch.manual_seed(0)

    class Penalised(Two):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x), self.one.weight.square().sum()

    for kind, works in (("mean", True), ("sum", False)):
        loss = lambda o, t, kind=kind: getattr(squares(o[0], t), kind)() + 0.1 * o[1]  # noqa: E731
        made = Job(make_model(Penalised(), torch.randn(4, 7), torch.randn(4, 5), loss), True, float64=True)
        plan = build(made.graph_for(2), stages=2, micro_batches=2, batch=4)
        if works:
            assert made.step(plan).weights == (0.5, 0.5)
        else:
            with pytest.raises(BadInput, match="neither a mean nor a sum"):
                made.step(plan)


def test_a_factor_that_is_an_input_without_rows_is_the_same_for_every_micro_batch() -> None:
    class Scaled(Two):
        def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x), scale * 2

    inputs, loss = (torch.randn(4, 7), torch.tensor(3.0)), lambda o, t: squares(o[0], t).mean() * o[1]
    model = make_model(Scaled(), inputs, torch.randn(4, 5), loss, batch_dims={"scale": None})
    made = Job(model, True, float64=True)
    assert made.step(build(made.graph_for(2), stages=2, micro_batches=2, batch=4)).weights == (0.5, 0.5)
