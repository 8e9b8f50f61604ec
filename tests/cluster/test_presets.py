"""Presets, their sources, and what `--cluster` accepts."""

import pytest

from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import faults
from trine.cluster.presets import PRESETS
from trine.cluster.toml import parse_cluster, print_cluster
from trine.errors import BadInput, UnknownName


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_every_number_has_a_source(preset):
    numbers = {"peak_flops_per_s", "memory_bytes", "memory_bandwidth_bytes_per_s", "launch_s", "network"}
    numbers |= {tier.name for tier in preset.tiers} | {shared.name for shared in preset.shared}
    assert set(preset.sources) == numbers
    assert all(preset.sources.values())


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 300])
def test_any_count_is_legal_and_survives_toml(name, count):
    c = PRESETS[name].times(count)
    assert faults(c) == []
    assert c.num_engines == count * PRESETS[name].per_unit
    assert parse_cluster(print_cluster(c)) == c


def test_preset_times_count():
    c = choose_cluster("a100-80gbx1024")
    assert c.num_engines == 1024
    assert c.link(0, 7) == PRESETS["a100-80gb"].tiers[0].link
    assert c.link(7, 8) == PRESETS["a100-80gb"].network
    assert len({id(engine) for engine in c.engines}) == 1


def test_a_board_is_its_cores():
    c = choose_cluster("raspberry-pi-5x3")
    assert c.num_engines == 12
    assert c.tier(0, 3).name == "board"
    assert c.tier(3, 4).name == "network"


def test_a_preset_alone_is_one_unit():
    assert choose_cluster("l4").num_engines == 1


def test_a_toml_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(print_cluster(choose_cluster("l4x3")))
    assert choose_cluster(str(file)).num_engines == 3


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(UnknownName) as error:
        choose_cluster("a100-80gigx8")
    assert "a100-80gb" in str(error.value)


def test_no_engines_at_all():
    with pytest.raises(BadInput, match="1 or more"):
        choose_cluster("l4x0")
