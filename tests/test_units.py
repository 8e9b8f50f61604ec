"""Quantities: what is parsed, what is printed, and that the one leads back to the other."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trine.errors import BadInput
from trine.units import BANDWIDTH, BYTES, COUNT, FLOPS, FLOPS_PER_S, RATE, TIME, Quantity

QUANTITIES = [BYTES, BANDWIDTH, TIME, COUNT, FLOPS, FLOPS_PER_S, RATE]
quantities = st.sampled_from(QUANTITIES)
values = st.floats(min_value=1e-12, max_value=1e24) | st.integers(min_value=1, max_value=2**50).map(float)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BYTES, "80 GiB", 80 * 2**30),
        (BYTES, "80GB", 80e9),
        (BYTES, "64 KB", 64e3),
        (BANDWIDTH, "450 GB/s", 450e9),
        (BANDWIDTH, "100 Gbit/s", 12.5e9),
        (TIME, "3 us", 3e-6),
        (TIME, "3m", 180.0),
        (TIME, "100ms", 0.1),
        (TIME, " .5 h ", 1800.0),
        (COUNT, "25.6 M", 25.6e6),
        (COUNT, "175B", 175e9),
        (COUNT, "1024", 1024.0),
        (FLOPS, "3.6 GFLOP", 3.6e9),
        (FLOPS_PER_S, "312 TFLOP/s", 312e12),
        (RATE, "200", 200.0),
        (RATE, "200/s", 200.0),
        (RATE, "30/min", 0.5),
    ],
)
def test_what_people_write_is_read(kind: Quantity, text: str, value: float):
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (BYTES, 80 * 2**30, "80 GiB"),
        (BYTES, 1023, "1023 B"),
        (BYTES, 0, "0 B"),
        (TIME, 0.0009997, "1 ms"),
        (TIME, 59.96, "1 min"),
        (TIME, 0.01234, "12.3 ms"),
        (TIME, -2e-6, "-2 us"),
        (TIME, 90, "1.5 min"),
        (TIME, float("inf"), "inf s"),
        (COUNT, 11_689_512, "11.7 M"),
        (BANDWIDTH, 450e9, "450 GB/s"),
        (RATE, 12_345.6, "12346/s"),
    ],
)
def test_what_is_printed_is_short(kind: Quantity, value: float, text: str):
    assert kind.format(value) == text


def test_whole_bytes_are_exact_where_floats_are_not():
    assert BYTES.parse_whole("9007199254740993 B") == 2**53 + 1


@given(quantities, values)
def test_a_printed_value_reads_back_within_its_digits(kind: Quantity, value: float):
    smallest = float(kind.units[kind.ladder[0]])
    assert kind.parse(kind.format(value)) == pytest.approx(value, rel=0.0051, abs=smallest * 0.0051)


@given(quantities, values)
@example(TIME, 59.96)
@example(BYTES, 1023.6)
def test_a_printed_value_prints_the_same_again(kind: Quantity, value: float):
    printed = kind.format(value)
    assert kind.format(kind.parse(printed)) == printed


@given(quantities, values)
def test_exact_text_reads_back_to_the_same_number(kind: Quantity, value: float):
    assert kind.parse(kind.exact(value)) == value


@given(st.integers(min_value=0, max_value=2**50))
def test_exact_bytes_read_back_whole(value: int):
    assert BYTES.parse_whole(BYTES.exact(value)) == value


@pytest.mark.parametrize("kind", QUANTITIES)
def test_its_own_example_and_units_are_read(kind: Quantity):
    assert kind.parse(kind.example) > 0
    assert all(kind.parse(f"1 {unit}") == pytest.approx(float(size)) for unit, size in kind.units.items())


@pytest.mark.parametrize("text", ["3 gb", "3 GBs", "3 Gb"])
def test_an_unknown_unit_names_it_and_those_possible(text: str):
    with pytest.raises(BadInput) as caught:
        BANDWIDTH.parse(text)
    assert all(word in str(caught.value) for word in [text.split()[1], *BANDWIDTH.units, BANDWIDTH.example])


def test_a_missing_unit_is_an_error_where_one_is_needed():
    with pytest.raises(BadInput, match="the unit is missing"):
        TIME.parse("3")


@pytest.mark.parametrize("text", ["", "ms", "-3 s", "3 s s", "1e999999999 s", "nan s", "inf s", "1,5 s"])
def test_what_is_no_quantity_is_an_error(text: str):
    with pytest.raises(BadInput, match="is not a time"):
        TIME.parse(text)
