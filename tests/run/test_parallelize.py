"""A parallel module is the module: results, gradients, buffers, modes, names."""

import copy
import gc
import pickle
import threading
import weakref

import msgspec
import pytest
import torch
from tests.run.small import apart, images, language, net, words
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.errors import BadInput, CannotCut, EngineFailed, PlanMismatch
from trine.plan.build import build
from trine.plan.file import write_plan
from trine.run.parallelize import parallelize

EXACT = 1e-12
X, Y = images(4)
GRAPH = capture(make_model(net(), X), training=True, with_loss=False).graph
LANGUAGE_GRAPH = capture(make_model(language(), words(2)), training=True, with_loss=False).graph
PLANS = {
    "data": build(GRAPH, data=2, batch=4),
    "height": build(GRAPH, tensor=(2,), cuts=("height",), batch=4),
    "channel": build(GRAPH, tensor=(2,), cuts=("channel",), batch=4),
    "stages": build(GRAPH, stages=2, batch=4),
}
LANGUAGE_PLANS = {
    "data": build(LANGUAGE_GRAPH, data=2, batch=2),
    "sequence": build(LANGUAGE_GRAPH, tensor=(2,), cuts=("sequence",), batch=2),
    "heads": build(LANGUAGE_GRAPH, tensor=(2,), cuts=("heads",), batch=2),
    "stages": build(LANGUAGE_GRAPH, stages=2, batch=2),
}


def gradients(module):
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def pair(plan):
    plain, own = net(), net()
    return plain, parallelize(own, plan, inputs=X)


@pytest.mark.parametrize("kind", PLANS)
def test_three_steps_evaluation_and_a_short_batch_equal_the_modules(kind):
    plain, parallel = pair(PLANS[kind])
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, parallel)]
    for x, y in ((X, Y), images(4, 2), images(1, 3)):
        results = []
        for module, optimizer in zip((plain, parallel), optimizers, strict=True):
            optimizer.zero_grad()
            out = module(x)
            functional.cross_entropy(out, y).backward()
            results.append(out.detach())
        assert torch.allclose(*results, rtol=0, atol=EXACT)
        assert apart(gradients(plain), gradients(parallel)) < EXACT
        for optimizer in optimizers:
            optimizer.step()
        assert apart(plain.state_dict(), parallel.state_dict()) < EXACT
    plain.eval()
    parallel.eval()
    with torch.no_grad():
        assert torch.allclose(plain(X), parallel(X), rtol=0, atol=EXACT)
    for module in (plain, parallel):
        module.zero_grad()
        module(X).square().sum().backward()  # with the running statistics
    assert apart(gradients(plain), gradients(parallel)) < 10 * EXACT


@pytest.mark.parametrize("kind", LANGUAGE_PLANS)
def test_tied_weights_and_results_of_which_one_is_used(kind):
    plain, own = language(), language()
    parallel = parallelize(own, LANGUAGE_PLANS[kind], inputs=words(2))
    assert parallel.head.weight is parallel.embed.weight
    for wanted in ("scores", "hidden"):
        for module in (plain, parallel):
            module.zero_grad()
            out = module(words(2, seed=5))
            assert list(out) == ["scores", "hidden"]
            out[wanted].square().mean().backward()
        assert apart(gradients(plain), gradients(parallel)) < EXACT
    with torch.no_grad():
        one, other = (module(words(2), scale=0.5)["scores"] for module in (plain, parallel))
    assert torch.allclose(one, other, rtol=0, atol=EXACT)


def test_what_no_gradient_reaches_has_none():
    plain, parallel = language(), parallelize(language(), LANGUAGE_PLANS["data"], inputs=words(2))
    for module in (plain, parallel):
        module.out.requires_grad_(False)
        module(words(2))["hidden"].sum().backward()
    assert list(gradients(plain)) == list(gradients(parallel))
    assert parallel.out.weight.grad is None


@pytest.mark.parametrize("kind", PLANS)
def test_inputs_get_gradients_and_calls_may_overlap(kind):
    plain, parallel = pair(PLANS[kind])
    found = []
    for module in (plain, parallel):
        a, b = (images(4, seed)[0].requires_grad_() for seed in (5, 6))
        (module(a) * module(b).detach() + module(b)).sum().backward()
        found.append({"a": a.grad, "b": b.grad, **gradients(module)})
    assert apart(*found) < EXACT


def test_the_parameters_are_the_same_and_state_dicts_go_round():
    own = net()
    parallel = parallelize(own, PLANS["channel"], inputs=X)
    assert all(a is b for a, b in zip(own.parameters(), parallel.parameters(), strict=True))
    assert list(parallel.state_dict()) == list(own.state_dict())
    other = net(seed=9)
    parallel.load_state_dict(other.state_dict())
    parallel.eval()
    assert not own.training
    assert torch.allclose(other.eval()(X), parallel(X), rtol=0, atol=EXACT)
    outer = torch.nn.Sequential(parallel)
    assert next(iter(outer.state_dict())).startswith("0.stem")
    outer.load_state_dict(torch.nn.Sequential(other).state_dict())
    assert not outer.train(True)[0].eval().training


def test_other_types_shapes_and_flags_are_captured_anew():
    plain, parallel = pair(PLANS["height"])
    x = images(2, 4)[0][:, :, :, :8]
    assert torch.allclose(plain(x), parallel(x), rtol=0, atol=EXACT)
    for module in (plain, parallel):
        module.norm.eval()
    assert torch.allclose(plain(X), parallel(X), rtol=0, atol=EXACT)
    assert apart(plain.state_dict(), parallel.state_dict()) < EXACT
    plain.float()
    parallel.float()
    assert torch.allclose(plain(X.float()), parallel(X.float()), atol=1e-5)
    with pytest.raises(CannotCut, match="height"):
        parallel(X[:, :, :1].float())


def test_a_forward_pass_without_gradients_keeps_nothing():
    parallel = parallelize(net(), PLANS["data"], inputs=X)
    with torch.no_grad():
        out = parallel(X)
    assert not out.requires_grad
    assert all(not (e.values or e.tape or e.grads) for e in parallel._crew.threads.engines)
    with torch.inference_mode():
        parallel.eval()(X)


def test_backward_twice_is_an_error():
    out = parallelize(net(), PLANS["data"], inputs=X)(X).sum()
    out.backward(retain_graph=True)
    with pytest.raises(BadInput, match="second time"):
        out.backward()


def test_dropout_follows_the_seed_of_torch():
    graph = capture(make_model(net(dropout=0.5), X), training=True, with_loss=False).graph
    parallel = parallelize(net(dropout=0.5), build(graph, data=2, batch=4), inputs=X)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(parallel(X).detach())
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[1], results[2])


def test_copies_and_pickles_are_parallel_modules_of_their_own():
    parallel = parallelize(net(), PLANS["data"], inputs=X)
    expected = parallel(X)
    twin = copy.deepcopy(parallel)
    assert twin.stem.weight is not parallel.stem.weight
    assert torch.equal(twin(X), expected)
    assert torch.equal(pickle.loads(pickle.dumps(parallel))(X), expected)


def test_the_threads_end_with_the_module_but_not_before_its_backward_pass():
    before = threading.active_count()
    own = net()
    loss = parallelize(own, PLANS["data"], inputs=X)(X).sum()
    gc.collect()
    assert threading.active_count() == before + 2
    loss.backward()
    assert own.stem.weight.grad is not None
    parallel = parallelize(own, PLANS["data"], inputs=X)
    parallel(X)
    gone = weakref.ref(parallel)
    del parallel
    gc.collect()
    assert gone() is None
    assert threading.active_count() == before


def test_after_a_failure_new_engines_start():
    parallel = parallelize(language(), LANGUAGE_PLANS["data"], inputs=words(2))
    with pytest.raises(EngineFailed, match="index"):
        parallel(words(2) + 100)
    assert parallel(words(2))["scores"].shape == (2, 6, 11)


def test_micro_batches_are_for_train_step():
    plan = build(GRAPH_2, stages=2, micro_batches=2, batch=4)
    plain, parallel = pair(plan)
    with pytest.raises(BadInput, match="train_step"):
        parallel(X)
    plain.eval()
    parallel.eval()
    with pytest.raises(BadInput, match="train_step"):
        parallel(X)
    with torch.no_grad():
        assert torch.allclose(plain(X), parallel(X), rtol=0, atol=EXACT)


GRAPH_2 = capture(make_model(net(), X[:2]), training=True, with_loss=False).graph


def test_a_plan_with_a_loss_serves_and_a_plan_of_another_model_does_not(tmp_path):
    graph = capture(make_model(net(), X, Y, functional.cross_entropy), training=True, with_loss=True).graph
    plan = build(graph, stages=2, batch=4)
    write_plan(plan, tmp_path / "plan.json")
    expected = net()(X)
    for more in ({}, {"loss": functional.cross_entropy, "targets": Y}):
        assert torch.allclose(parallelize(net(), tmp_path / "plan.json", inputs=X, **more)(X), expected, atol=EXACT)
    with pytest.raises(PlanMismatch):
        parallelize(language(), PLANS["data"], inputs=words(4))
    with pytest.raises(PlanMismatch, match="batch"):
        parallelize(net(), PLANS["data"], inputs=X[:2])
    other = msgspec.structs.replace(plan, fingerprint="0")
    with pytest.raises(PlanMismatch):
        parallelize(net(), other, inputs=X, loss=functional.cross_entropy, targets=Y)
