"""Clusters as TOML: out and in again, and what a faulty file is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import DTYPES, Cluster, Engine, Link, Shared, Tier
from trine.cluster.toml import parse_cluster, print_cluster, read_cluster
from trine.errors import BadInput, UnknownKey

GOOD = """
name = "two boxes"
[[engines]]
name = "card"
kind = "gpu"
count = 16
peak = { float32 = "19.5 TFLOP/s", bfloat16 = "312 TFLOP/s" }
memory = "80 GiB"
memory_bandwidth = "2039 GB/s"
launch = "5.2 us"
[[tiers]]
name = "box"
size = 8
latency = "3.4 us"
bandwidth = "300 GB/s"
[[tiers]]
name = "network"
size = 16
latency = "14 us"
bandwidth = "200 Gbit/s"
[[shared]]
name = "bus"
size = 8
bandwidth = "1 TB/s"
"""


def test_the_example_is_read():
    c = parse_cluster(GOOD)
    assert c.num_engines == 16
    assert c.engines[0].memory_bytes == 80 * 2**30
    assert c.engines[15].peak("bfloat16") == 312e12
    assert c.link(0, 8) == Link(latency_s=14e-6, bandwidth_bytes_per_s=25e9)
    assert c.shared == (Shared(name="bus", size=8, bandwidth_bytes_per_s=1e12),)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("80 GiB", "80 GiBit", ["memory", "80 GiBit", "GiB", "engines[0]"]),
        ("2039 GB/s", "2039 GB", ["memory_bandwidth", "2039 GB", "GB/s"]),
        ('"80 GiB"', "80", ["memory = 80", "in quotes", "80 GiB"]),
        ("19.5 TFLOP/s", "19.5 T", ["float32", "19.5 T", "TFLOP/s"]),
        ("float32", "float33", ["float33", "float32"]),
        ("count = 16", "count = 0", ["count = 0", "1 or more"]),
        ("count = 16", "count = true", ["count = True", "whole number"]),
        ("count = 16", "count = 17", ["17 engines", "outermost tier joins 16"]),
        ("size = 8", 'size = "8"', ["size = '8'", "whole number"]),
        ('kind = "gpu"', "", ["no key 'kind'", "gpu"]),
        ("[[tiers]]", "[tiers]", ["TOML"]),
        ('name = "two boxes"', "name = two", ["TOML"]),
    ],
)
def test_a_fault_names_file_key_value_and_what_is_possible(tmp_path, old, new, said):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(BadInput) as error:
        read_cluster(file)
    for words in [str(file), *said]:
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('name = "two boxes"', 'names = "two boxes"', "names"),
        ("launch", "lunch", "lunch"),
        ("latency", "delay", "delay"),
        ("[[shared]]", "[[shares]]", "shares"),
    ],
)
def test_an_unknown_key_names_the_known_ones(tmp_path, old, new, key):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UnknownKey) as error:
        read_cluster(file)
    assert error.value.key == key
    assert str(file) in error.value.where


def test_engines_of_a_preset():
    c = parse_cluster('name = "cards"\n[[engines]]\npreset = "l4"\n')
    assert c.engines[0].name == "l4"
    with pytest.raises(BadInput, match="l4"):
        parse_cluster('name = "cards"\n[[engines]]\npreset = "l5"\n')
    with pytest.raises(UnknownKey, match="memory"):
        parse_cluster('name = "cards"\n[[engines]]\npreset = "l4"\nmemory = "1 GiB"\n')


@pytest.mark.parametrize(("name", "count"), [("raspberry-pi-5", 2), ("l4", 3)])
def test_a_count_of_a_preset_means_the_same_in_a_file_and_in_a_name(name, count):
    tiers = '[[tiers]]\nname = "all"\nsize = 8\nlatency = "1 us"\nbandwidth = "1 GB/s"\n'
    c = parse_cluster(f'name = "c"\n[[engines]]\npreset = "{name}"\ncount = {count}\n{tiers}')
    assert c.engines == choose_cluster(f"{name}x{count}").engines


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        read_cluster(tmp_path / "cluster.toml")


positive = st.floats(1e-9, 1e18)
seconds = st.just(0.0) | st.floats(1e-12, 1)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
engine = st.builds(
    Engine,
    name=names,
    kind=names,
    peak_flops_per_s=st.dictionaries(st.sampled_from(DTYPES), positive, min_size=1),
    memory_bytes=st.integers(1, 2**52),
    memory_bandwidth_bytes_per_s=positive,
    launch_s=seconds,
)
link = st.builds(Link, latency_s=seconds, bandwidth_bytes_per_s=positive)


@st.composite
def clusters(draw):
    engines = draw(st.lists(engine, min_size=1, max_size=3))
    engines = [e for e in engines for _ in range(draw(st.integers(1, 3)))]
    sizes = [2, 6, 12][: draw(st.integers(3, 3))]
    return Cluster(
        name=draw(names),
        engines=tuple(engines),
        tiers=tuple(Tier(name=draw(names), size=size, link=draw(link)) for size in sizes),
        shared=tuple(
            draw(st.lists(st.builds(Shared, name=names, size=st.integers(1, 9), bandwidth_bytes_per_s=positive,
                                    memory_bytes=st.none() | st.integers(1, 2**52)), max_size=2))
        ),
    )  # fmt: skip


@given(clusters())
def test_out_and_in_again(c):
    assert parse_cluster(print_cluster(c)) == c
