"""A training step by a plan is a training step: losses and weights, micro-batches and a smaller batch included."""

import pytest
import torch
from tests.run.small import apart, images, language, net, words
from torch import Tensor
from torch.nn import functional

import trine
from trine.capture.export import capture
from trine.capture.model import make_model
from trine.errors import BadInput, PlanMismatch
from trine.plan.build import build
from trine.run.optimizer import OptimizerSpec
from trine.run.training import train_step

EXACT = 1e-12
ADAM = OptimizerSpec("adam", lr=0.01, eps=1e-3)  # with less, rounding alone moves a bias whose gradient is zero
X, Y = images(4)
BATCHES = (images(4, 1), images(4, 2), images(3, 3), images(1, 4), images(4, 5))
WHOLE, HALF = (
    capture(make_model(net(), X[:n], Y[:n], functional.cross_entropy), training=True, with_loss=True).graph
    for n in (4, 2)
)
PLANS = {
    "data": build(WHOLE, data=2, batch=4),
    "channel": build(WHOLE, tensor=(2,), cuts=("channel",), batch=4),
    "stages": build(HALF, stages=2, micro_batches=2, batch=4),
    "gpipe": build(HALF, stages=2, data=2, micro_batches=2, schedule="gpipe", batch=4),
}


def steps(plan, **more):
    given = {"loss": functional.cross_entropy, "optimizer": ADAM, "inputs": X, "targets": Y, **more}
    return train_step(net(), plan, **given)


def accumulated(micro_batches: int) -> tuple[list[float], dict[str, Tensor]]:
    """One engine over the same micro-batches."""
    module = net()
    optimizer = ADAM(module.parameters())
    losses = []
    for x, y in BATCHES:
        optimizer.zero_grad()
        count, total = min(micro_batches, len(x)), 0.0
        for a, b in zip(x.tensor_split(count), y.tensor_split(count), strict=True):
            loss = functional.cross_entropy(module(a), b) * (len(a) / len(x))
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses, module.state_dict()


@pytest.mark.parametrize("on", ["threads", "lockstep"])
@pytest.mark.parametrize("kind", PLANS)
def test_steps_equal_those_of_one_engine_with_smaller_batches_between(kind, on):
    losses, weights = accumulated(PLANS[kind].micro_batches)
    with steps(PLANS[kind], on=on) as step:
        found = [step(batch) for batch in BATCHES]
        assert all(isinstance(loss, Tensor) and not loss.requires_grad for loss in found)
        assert [float(loss) for loss in found] == pytest.approx(losses, abs=EXACT)
        state = step.state_dict()
    assert apart(weights, state) < EXACT
    net().load_state_dict(state)


def test_tied_weights_over_stages_keep_one_gradient():
    def loss(output: dict[str, Tensor], targets: Tensor) -> Tensor:
        return functional.cross_entropy(output["scores"].flatten(0, 1), targets.flatten())

    x, y = words(4), words(4, seed=2)
    half = capture(make_model(language(), x[:2], y[:2], loss), training=True, with_loss=True).graph
    plan = build(half, stages=2, micro_batches=2, batch=4)
    module = language()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with train_step(language(), plan, loss=loss, optimizer=OptimizerSpec("sgd", lr=0.5), inputs=x, targets=y) as step:
        for _ in range(2):
            optimizer.zero_grad()
            expected = loss(module(x), y)
            expected.backward()
            optimizer.step()
            assert float(step((x, y))) == pytest.approx(expected.item(), abs=EXACT)
        state = step.state_dict()
    assert apart(module.state_dict(), state) < EXACT


def test_frozen_parameters_stay():
    module = net()
    module.stem.weight.requires_grad_(False)
    given = {"loss": functional.cross_entropy, "optimizer": ADAM, "inputs": X, "targets": Y}
    with train_step(module, PLANS["data"], **given) as step:
        step((X, Y))
        state = step.state_dict()
    assert torch.equal(state["stem.weight"], module.stem.weight)
    assert not torch.equal(state["head.weight"], module.head.weight)


def test_a_micro_batch_without_any_target_and_a_buffer_that_is_only_written():
    def remember(module: torch.nn.Module, _: object, y: Tensor) -> None:
        module.last.copy_(y.detach().mean(0))

    module = net()
    module.register_forward_hook(remember)
    module.register_buffer("last", torch.zeros(5, dtype=X.dtype))
    y = torch.tensor([1, -100, -100, -100])
    graph = capture(make_model(module, X[:2], y[:2], functional.cross_entropy), training=True, with_loss=True).graph
    plan = build(graph, stages=2, micro_batches=2, batch=4)
    given = {"loss": functional.cross_entropy, "optimizer": ADAM, "inputs": X, "targets": y}
    with train_step(module, plan, **given) as step:
        loss, state = step((X, y)), step.state_dict()
    assert float(loss) == pytest.approx(functional.cross_entropy(net()(X[:2]), y[:2]).item(), abs=EXACT)
    own = net()
    own(X[:2])
    assert torch.allclose(state["last"], own(X[2:]).mean(0))
    assert all(value.isfinite().all() for value in state.values())


def test_the_learning_rate_may_follow_a_schedule():
    with steps(PLANS["data"], optimizer=OptimizerSpec("sgd", lr=1.0)) as step:
        schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.0) for optimizer in step.optimizers]
        step((X, Y))
        for schedule in schedules:
            schedule.step()
        before = step.state_dict()["head.weight"]
        step((X, Y))
        assert torch.equal(step.state_dict()["head.weight"], before)


def test_what_cannot_be_is_said():
    with steps(PLANS["stages"]) as step:
        with pytest.raises(BadInput, match="batch of 5"):
            step(images(5))
        with pytest.raises(BadInput, match="shape"):
            step((X[:, :, :6], Y))
        with pytest.raises(BadInput, match="structure"):
            step(((X, X), Y))
        assert float(step((X, Y))) > 0
    with pytest.raises(PlanMismatch):
        steps(PLANS["data"], inputs=X[:2], targets=Y[:2])
    with pytest.raises(BadInput, match="Norms"):
        steps(PLANS["channel"], optimizer=Norms)


class Norms(torch.optim.SGD):
    """Stands for an optimizer that looks at whole tensors."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, lr=0.1)


@pytest.mark.processes
def test_on_processes():
    losses, _ = accumulated(2)
    with steps(PLANS["stages"], on="processes") as step:
        assert [float(step(batch)) for batch in BATCHES[:2]] == pytest.approx(losses[:2], abs=EXACT)
        with pytest.raises(BadInput, match="processes"):
            step(BATCHES[2])
        state = step.state_dict()
    with steps(PLANS["stages"]) as step:
        for batch in BATCHES[:2]:
            step(batch)
        assert apart(state, step.state_dict()) < EXACT


def test_the_answer_of_plan_is_a_plan():
    planned = trine.plan(net(), inputs=X, targets=Y, loss=functional.cross_entropy, engines=2)
    with steps(planned) as step:
        assert step.plan == planned.best
    with pytest.raises(BadInput, match=r"trine\.plan"):
        steps(2)
    with pytest.raises(BadInput, match="OptimizerSpec"):
        steps(planned, optimizer=torch.optim.SGD(net().parameters(), lr=0.1))
