"""Rates of a device from the times of three nets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cost.nets import FITTED_NETS, FITTED_NETS_INT8, NETS, Rates, counts, fit
from trine.errors import BadInput

rates = st.builds(Rates, st.floats(1e-13, 1e-9), st.floats(1e-12, 1e-8), st.floats(1e-7, 1e-3))


@given(rates, st.sampled_from([FITTED_NETS, FITTED_NETS_INT8]))
def test_three_nets_give_back_the_rates_that_made_their_times(made: Rates, nets: tuple[str, ...]):
    found = fit({name: made.time_s(name) for name in nets})
    for name in NETS:
        assert found.time_s(name) == pytest.approx(made.time_s(name), rel=1e-3)


@given(st.lists(st.floats(1e-4, 10), min_size=3, max_size=3))
def test_no_rate_is_negative(times: list[float]):
    found = fit(dict(zip(FITTED_NETS, times, strict=True)))
    assert min(found.s_per_flop, found.s_per_byte, found.s_per_launch) >= 0


def test_a_faster_device_is_faster_on_every_net():
    slow, fast = Rates(2e-12, 2e-10, 2e-5), Rates(1e-12, 1e-10, 1e-5)
    assert all(fast.time_s(name) == pytest.approx(slow.time_s(name) / 2) for name in NETS)


def test_int8_is_the_same_net_in_a_quarter_of_the_bytes():
    net, number_bytes = counts("resnet50")
    assert counts("resnet50_int8") == (net, 1)
    assert net.amounts(1)[1] * number_bytes == net.amounts(number_bytes)[1]


def test_no_times_give_no_rates():
    with pytest.raises(BadInput, match="0 times"):
        fit({})
