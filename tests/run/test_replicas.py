"""Models without a graph: replicas on DistributedDataParallel equal one engine."""

import os
import signal
import time

import pytest
import torch
from tests.run.branching import BATCH, branching
from torch import nn

from trine.errors import BadInput, EngineFailed
from trine.report.verify import verify
from trine.run.job import Job, reference_steps
from trine.run.judge import STRICT
from trine.run.judge_replicas import judge_replicas
from trine.run.replicas import Replicas, cut_rows
from trine.run.undropped import without_dropout

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
WITHIN_S = 5.0


def wide(training: bool = True, batch: int = BATCH) -> Job:
    return Job(branching(batch=batch), training, float64=True)


@pytest.mark.parametrize(("engines", "shares"), [(2, ()), (3, (1, 3, 1))])
def test_three_training_steps_equal_one_engines(engines: int, shares: tuple[float, ...]) -> None:
    verdict = judge_replicas(wide(), engines, shares)
    assert verdict.equal, verdict.worst()
    assert {d.kind for d in verdict.differences} == {"outputs", "loss", "gradients", "buffers", "weights"}
    assert all(d.value <= STRICT for d in verdict.differences if d.step == 0)
    assert "dropout off" in verdict.worst().where


def test_in_inference_replicas_do_not_talk() -> None:
    verdict = judge_replicas(wide(training=False), 2)
    assert verdict.equal, verdict.worst()
    assert verdict.bytes_sent == (0, 0)


def test_a_short_last_batch_and_a_replica_without_a_row() -> None:
    job = wide()
    with Replicas(job, job.optimizer, 2, dropout=False) as replicas:
        for rows in (2, 1):
            inputs = job.inputs.map(lambda t, dim, number, n=rows: t.narrow(dim, 0, n))
            with without_dropout():
                part = Job(branching(), True, float64=True)
                part._inputs = inputs
                if rows == 2:
                    (want,) = reference_steps(part, ((0, rows),), (1.0,), 1)
                    whole = replicas.step(inputs)
                    assert float(whole.losses[0]) == pytest.approx(want.loss, rel=1e-12)
                    for name, gradient in want.gradients.items():
                        assert torch.allclose(whole.gradients[name], gradient, rtol=0, atol=1e-12), name
                else:
                    whole = replicas.step(inputs)
                    assert torch.isfinite(whole.losses[0])
                    assert all(gradient.isfinite().all() for gradient in whole.gradients.values())
            assert len(whole.results["0", 0]) == rows


def test_rows_are_cut_by_shares() -> None:
    assert cut_rows(5, (1, 1)) == [(0, 3), (3, 5)]
    assert cut_rows(1, (1, 1)) == [(0, 1), (0, 0)]


def test_what_cannot_be_sent_is_named() -> None:
    job = Job(branching(loss=lambda output, target: nn.functional.cross_entropy(output, target)), True)
    with pytest.raises(BadInput, match="lambda"):
        Replicas(job, job.optimizer, 2)


def test_a_killed_replica_is_the_one_reported() -> None:
    with Replicas(wide(), wide().optimizer, 2) as replicas:
        replicas.step(tensors=False)
        victim = replicas.supervisor.processes[1].pid
        os.kill(victim, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(EngineFailed, match="SIGKILL") as caught:
            replicas.step(tensors=False)
    assert caught.value.rank == 1
    assert time.monotonic() - start < WITHIN_S


def test_verify_falls_back_to_replicas() -> None:
    (verdict,) = verify(branching())
    assert verdict.equal
    assert (verdict.on, verdict.plan.describe()) == ("processes", "data 2 (batch)")


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: nn.functional.dropout(x, 0.5),
        lambda x: nn.Dropout2d(0.5)(x),
        lambda x: torch.dropout(x, 0.5, True),
        lambda x: nn.AlphaDropout(0.5)(x),
    ],
)
def test_dropout_is_off(drop) -> None:
    x = torch.randn(2, 3, 4, 4)
    with without_dropout():
        assert torch.equal(drop(x), x)
    assert not torch.equal(drop(x), x)


def test_dropout_inside_attention_is_off() -> None:
    q = torch.randn(1, 2, 4, 8)
    attend = nn.functional.scaled_dot_product_attention
    with without_dropout():
        assert torch.equal(attend(q, q, q, None, 0.5, True), attend(q, q, q, is_causal=True))
