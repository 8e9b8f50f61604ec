"""Laws of the soft roofline."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cluster.presets import PRESETS
from trine.cost.analytic import Roofline, from_engine, from_profile
from trine.errors import BadInput, UnknownName

amounts = st.one_of(st.just(0.0), st.floats(1.0, 1e18))
rates = st.floats(1e6, 1e18)
rooflines = st.builds(
    Roofline,
    peak_flops_per_s=rates,
    bandwidth_bytes_per_s=rates,
    compute_efficiency=st.floats(0.05, 1),
    memory_efficiency=st.floats(0.05, 1),
    sharpness=st.floats(1, 8),
    launch_s=st.floats(0, 1e-3),
)


@given(rooflines, amounts, amounts)
def test_between_the_longer_term_and_their_sum(roofline, flops, num_bytes):
    compute = flops / (roofline.peak_flops_per_s * roofline.compute_efficiency)
    memory = num_bytes / (roofline.bandwidth_bytes_per_s * roofline.memory_efficiency)
    time_s = roofline.time_s(flops, num_bytes)
    slack = 1 + 1e-9
    assert roofline.launch_s + max(compute, memory) <= time_s * slack
    assert time_s <= (roofline.launch_s + compute + memory) * slack


@given(rooflines, amounts, amounts, st.floats(1, 100))
@pytest.mark.parametrize(
    "field", ["peak_flops_per_s", "bandwidth_bytes_per_s", "compute_efficiency", "memory_efficiency", "sharpness"]
)
def test_a_better_engine_is_never_slower(field, roofline, flops, num_bytes, factor):
    better = msgspec.structs.replace(roofline, **{field: getattr(roofline, field) * factor})
    assert better.time_s(flops, num_bytes) <= roofline.time_s(flops, num_bytes) * (1 + 1e-9)


@given(rooflines, amounts, amounts, st.floats(0, 1e15))
def test_more_work_is_never_faster(roofline, flops, num_bytes, more):
    time_s = roofline.time_s(flops, num_bytes)
    assert roofline.time_s(flops + more, num_bytes) >= time_s * (1 - 1e-9)
    assert roofline.time_s(flops, num_bytes + more) >= time_s * (1 - 1e-9)


def test_nothing_to_do_costs_the_launch():
    assert Roofline(peak_flops_per_s=1, bandwidth_bytes_per_s=1, launch_s=2.0).time_s(0, 0) == 2.0


def test_negative_work_is_refused():
    with pytest.raises(BadInput, match="negative"):
        Roofline(peak_flops_per_s=1, bandwidth_bytes_per_s=1).time_s(-1, 0)


@given(st.integers(1, 64))
def test_engines_that_share_memory_slow_each_other(num_sharing):
    engine = PRESETS["raspberry-pi-5"].engine
    shared = PRESETS["raspberry-pi-5"].shared[0].bandwidth_bytes_per_s
    fewer = from_engine(engine, "float32", num_sharing=num_sharing, shared_bandwidth=shared)
    more = from_engine(engine, "float32", num_sharing=num_sharing + 1, shared_bandwidth=shared)
    assert fewer.time_s(1e6, 1e6) < more.time_s(1e6, 1e6)


def test_a_fitted_engine_says_so():
    assert from_engine(PRESETS["a100-80gb"].engine, "float16").calibrated
    assert not from_engine(PRESETS["l4"].engine, "float16").calibrated


def test_a_matrix_product_on_an_a100_takes_about_what_was_measured():
    """2 x 4096^3 FLOPs in fp16 at 70 to 75 % of the peak (Vidur's tables: 3e10 to 1e11 FLOPs)."""
    flops, num_bytes = 2 * 4096**3, 3 * 4096**2 * 2
    time_s = from_engine(PRESETS["a100-80gb"].engine, "float16").time_s(flops, num_bytes)
    assert 0.65 < flops / time_s / 312e12 < 0.76


def test_from_a_profile(profile):
    alone, busy = (from_profile(profile, "conv", "float32", n) for n in (1, 2))
    assert alone.time_s(2e9, 0) == pytest.approx(profile.launch(1).forward_s + 1.0)
    assert busy.time_s(0, 1e9) > alone.time_s(0, 1e9)
    assert from_profile(profile, "conv", "float32", 1, backward=True).launch_s == profile.launch(1).backward_s
    with pytest.raises(UnknownName, match="float16"):
        from_profile(profile, "conv", "float16", 1)
