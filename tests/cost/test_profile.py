"""The profile as a value: JSON, cache, interpolation."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cost.profile import (
    LinkTable,
    Profile,
    Timing,
    cache_directory,
    check_directory,
    load_profile,
    profile_path,
    save_profile,
)
from trine.errors import BadInput, TrineError, UnknownName

measured = st.dictionaries(st.integers(1, 2**40), st.floats(1e-7, 10), min_size=1, max_size=9)
sizes = st.floats(0, 2**42)


@given(measured, sizes, sizes)
def test_a_larger_message_is_never_faster(times, one, other):
    table = LinkTable.measured(2, times)
    small, large = sorted((one, other))
    assert table.time_s(small) <= table.time_s(large) * (1 + 1e-9)


@given(measured)
def test_a_table_goes_through_its_points_and_not_above_what_was_measured(times):
    table = LinkTable.measured(2, times)
    for size, time_s in zip(table.sizes_bytes, table.times_s, strict=True):
        assert table.time_s(size) == pytest.approx(time_s)
        assert time_s <= times[size]


def test_between_and_outside_the_points():
    table = LinkTable(num_ranks=2, sizes_bytes=(100, 10_000, 20_000), times_s=(1.0, 4.0, 6.0))
    assert table.time_s(0) == table.time_s(100) == 1.0
    assert table.time_s(1000) == pytest.approx(2.0)
    assert table.time_s(50_000) == pytest.approx(6.0 + 30_000 * 2 / 10_000)


@pytest.mark.parametrize(
    ("sizes_bytes", "times_s"), [((), ()), ((1, 2), (1.0,)), ((2, 1), (1.0, 2.0)), ((1, 2), (2.0, 1.0)), ((1,), (0.0,))]
)
def test_an_illegal_table_is_refused(sizes_bytes, times_s):
    with pytest.raises(BadInput, match="link table"):
        LinkTable(num_ranks=2, sizes_bytes=sizes_bytes, times_s=times_s)


def test_a_negative_message_is_refused(profile):
    with pytest.raises(BadInput, match="0 bytes or more"):
        profile.table("processes", "p2p").time_s(-1)


def test_rates_by_concurrency(profile):
    assert profile.rate("matmul", "float32", 1) == 2e9
    assert profile.rate("matmul", "float32", 2) == pytest.approx(2e9 * 0.5**0.5)
    assert profile.rate("stream", "float32", 4) == 0.5e9
    assert profile.rate("stream", "float32", 8) == 0.25e9
    with pytest.raises(UnknownName, match="depthwise"):
        profile.rate("deptwise", "float32")


@given(st.integers(1, 100), st.integers(1, 100))
def test_more_busy_cores_do_more_in_all_and_less_each(few, more):
    few, more = sorted((few, more))
    p = make_profile()
    assert p.rate("stream", "float32", few) * (1 + 1e-9) >= p.rate("stream", "float32", more)
    assert p.rate("stream", "float32", few) * few <= p.rate("stream", "float32", more) * more * (1 + 1e-9)


def make_profile() -> Profile:
    text = b"""{"fingerprint": "0", "machine": "m", "date": "d", "torch_version": "t", "num_threads": 4, "links": {},
      "launches": [], "rates": [
      {"concurrency": 1, "matmul_flops_per_s": {}, "conv_flops_per_s": {}, "depthwise_flops_per_s": {},
       "stream_bytes_per_s": 4.0},
      {"concurrency": 4, "matmul_flops_per_s": {}, "conv_flops_per_s": {}, "depthwise_flops_per_s": {},
       "stream_bytes_per_s": 2.0}]}"""
    return msgspec.json.decode(text, type=Profile)


def test_launch_is_the_nearest_measured(profile):
    assert profile.launch(1).concurrency == 1
    assert profile.launch(2).concurrency == 1
    assert profile.launch(3).concurrency == 4


def test_links_by_name(profile):
    assert profile.table("processes", "p2p").num_ranks == 2
    with pytest.raises(UnknownName, match="processes"):
        profile.table("process", "p2p")
    with pytest.raises(UnknownName, match="all_reduce"):
        profile.table("processes", "all_to_all")


def test_operators_are_kept_by_concurrency(profile):
    alone = Timing(concurrency=1, forward_s=1.0, backward_s=2.0, saved_bytes=3)
    busy = msgspec.structs.replace(alone, concurrency=2)
    more = profile.with_timings({"conv 3x3": alone}).with_timings({"conv 3x3": busy})
    assert more.timing("conv 3x3", 1) == alone
    assert more.timing("conv 3x3", 2) == busy
    assert more.timing("conv 3x3", 3) is None
    assert profile.timing("conv 3x3") is None


def test_saved_and_loaded(profile, tmp_path):
    directory = tmp_path / "a" / "b"
    assert load_profile(directory, profile.fingerprint) is None
    path = save_profile(profile, directory)
    assert load_profile(directory, profile.fingerprint) == profile
    assert list(directory.iterdir()) == [path]


def test_an_older_format_is_measured_again(profile, tmp_path):
    save_profile(msgspec.structs.replace(profile, format=0), tmp_path)
    assert load_profile(tmp_path, profile.fingerprint) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1}'])
def test_a_broken_file_is_one_clear_error(tmp_path, text):
    profile_path(tmp_path, "f").write_text(text)
    with pytest.raises(TrineError, match="Delete it"):
        load_profile(tmp_path, "f")


def test_a_cache_that_cannot_be_written_is_one_clear_error(profile, tmp_path):
    (tmp_path / "file").write_text("")
    for use in (lambda d: save_profile(profile, d), check_directory):
        with pytest.raises(TrineError, match="XDG_CACHE_HOME"):
            use(tmp_path / "file" / "trine")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TrineError, match="Permission denied"):
        check_directory(tmp_path)


@pytest.mark.parametrize(
    ("given", "folder"),
    [(None, "/home/a/.cache/trine"), ("/var/c", "/var/c/trine"), ("relative", "/home/a/.cache/trine")],
)
def test_where_the_cache_is(given, folder):
    environment = {} if given is None else {"XDG_CACHE_HOME": given}
    assert cache_directory(environment, Path("/home/a")) == Path(folder)
