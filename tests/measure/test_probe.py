"""Work of known size, and the probe."""

import os

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from trine.errors import UnknownName
from trine.measure.probe import Probe, disturbance, measure_rate, probe
from trine.measure.work import KINDS, STREAM_BYTES, make_work


@pytest.mark.parametrize("kind", ["matmul", "conv", "depthwise"])
def test_the_amount_is_what_torch_counts(kind):
    work = make_work(kind, torch.float32)
    with FlopCounterMode(display=False) as counter:
        work.call()
    assert counter.get_total_flops() == work.amount


def test_a_stream_moves_three_buffers():
    work = make_work("stream", torch.float32)
    assert work.amount == 3 * STREAM_BYTES
    assert torch.equal(work.call(), torch.full((STREAM_BYTES // 4,), 2.0))


def test_unknown_work():
    with pytest.raises(UnknownName, match="conv"):
        make_work("convolution", torch.float32)


def test_a_probe_gives_four_rates():
    found = probe(duration_s=0.1)
    assert list(found.rates()) == list(KINDS)
    assert all(rate > 0 for rate in found.rates().values())
    assert found.change(found) == 0


def test_change_is_the_largest():
    one = Probe(
        concurrency=1, matmul_flops_per_s=1.0, conv_flops_per_s=2.0, depthwise_flops_per_s=4.0, stream_bytes_per_s=8.0
    )
    other = Probe(
        concurrency=1, matmul_flops_per_s=1.0, conv_flops_per_s=1.0, depthwise_flops_per_s=5.0, stream_bytes_per_s=8.0
    )
    assert one.change(other) == 0.5
    assert other.change(one) == 1.0


def test_a_rate_at_concurrency():
    assert measure_rate("depthwise", torch.float32, 2, max_s=0.02) > 0


def test_somebody_else_is_noticed():
    """Twice as many threads as cores: at least about half of what they want is not theirs."""
    assert 0 <= disturbance(1, duration_s=0.05) < 1
    assert disturbance(2 * (os.cpu_count() or 1), duration_s=0.5) > 0.25
