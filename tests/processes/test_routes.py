"""What processes know in advance of their messages, checked over whole Programs; starts no process."""

from math import prod

import pytest
from tests.processes.cases import PLANS, case

from trine.run.routes import Route, exchanges, groups, routes


def routes_of(plan: str) -> dict[int, Route]:
    programs = case(plan).programs
    return routes({p.rank: exchanges(p) for p in programs}, len(programs[0].batches))


@pytest.mark.parametrize("plan", PLANS)
def test_every_send_has_its_receive(plan: str) -> None:
    known = routes_of(plan)
    sent = {(rank, peer, e.tag) for rank, route in known.items() for e in route.exchanges for peer in e.sends}
    came = {(m.peer, rank, e.tag) for rank, route in known.items() for e in route.exchanges for m in e.receives}
    assert sent == came
    assert all(prod(m.shape) for route in known.values() for e in route.exchanges for m in e.receives)


@pytest.mark.parametrize("plan", PLANS)
def test_numbers_of_tags_are_different_and_equal_on_both_sides(plan: str) -> None:
    known = routes_of(plan)
    tags = {e.tag for route in known.values() for e in route.exchanges} | {("c", 0), ("c", 1)}
    for route in known.values():
        numbers = {route.number(tag) for tag in tags}
        assert len(numbers) == len(tags)
        assert 0 <= min(numbers) <= max(numbers) < 2**31
    assert len({tuple(route.number(tag) for tag in sorted(tags, key=str)) for route in known.values()}) == 1


@pytest.mark.parametrize("plan", PLANS)
def test_a_send_that_is_said_to_be_done_was_received(plan: str) -> None:
    """Replayed: when the peer sends the message, it has had the tensors that the message vouches for."""
    known = routes_of(plan)
    for rank, route in known.items():
        for (peer, tag), done in route.done.items():
            order = [e.tag for e in known[peer].exchanges]
            had = {e.tag for e in known[peer].exchanges[: order.index(tag)] for m in e.receives if m.peer == rank}
            assert set(done) <= had


def test_in_1f1b_no_more_sends_are_open_than_stages() -> None:
    route = routes_of("1f1b")[0]
    still, most = set(), 0
    for exchange in route.exchanges:
        still |= {(peer, exchange.tag) for peer in exchange.sends}
        most = max(most, len(still))
        for message in exchange.receives:
            still -= {(message.peer, tag) for tag in route.done.get((message.peer, exchange.tag), ())}
    assert most == 2


def test_groups_are_in_one_order() -> None:
    programs = case("three tiles").programs
    assert groups(programs) == groups(programs[::-1]) == ((0, 1, 2),)
