"""Who has room for what: the engine's own memory, and a memory that several share."""

import msgspec
import pytest

from trine.cluster.choose import choose_cluster
from trine.cluster.cluster import Cluster, Shared
from trine.cluster.room import shortage

GIB = 2**30


@pytest.fixture
def board() -> Cluster:
    """Eight cores, of which four share 8 GiB."""
    return choose_cluster("raspberry-pi-5x2")


def test_an_engine_has_its_own_memory():
    cluster = choose_cluster("a100-80gbx4")
    assert shortage(cluster, [80 * GIB] * 4) is None
    short = shortage(cluster, [1, 80 * GIB + 1, 120 * GIB, 1])
    assert short is not None
    assert (short.first, short.last, short.need_bytes, short.limit_bytes) == (2, 2, 120 * GIB, 80 * GIB)
    assert str(short) == "engine 2 needs 120 GiB, and there are 80 GiB"


def test_a_core_may_take_what_the_others_leave(board: Cluster):
    assert board.engines[0].memory_bytes == 2 * GIB
    assert shortage(board, [8 * GIB]) is None
    assert shortage(board, [5 * GIB, 3 * GIB, 0, 0, 8 * GIB]) is None


def test_what_is_shared_holds_the_sum(board: Cluster):
    short = shortage(board, [0, 0, 0, 0, 5 * GIB, 4 * GIB])
    assert str(short) == "engines 4 to 5 together need 9 GiB, and there are 8 GiB"


def test_both_limits_hold_where_engines_have_memory_of_their_own():
    common = Shared(name="host", size=2, bandwidth_bytes_per_s=1e9, memory_bytes=100 * GIB)
    cluster = msgspec.structs.replace(choose_cluster("a100-80gbx2"), shared=(common,))
    assert shortage(cluster, [81 * GIB, 0]) is not None
    assert shortage(cluster, [60 * GIB, 60 * GIB]) is not None
    assert shortage(cluster, [50 * GIB, 50 * GIB]) is None
