"""Programs of every plan are legal, and each rule finds a Program that breaks it."""

from collections.abc import Callable

import msgspec
import pytest
from tests.program.small import Steps, programs, with_steps, with_transfer
from tests.run.nets import NAMES

from trine.program.check import check, faults
from trine.program.program import Instruction, Program


@pytest.mark.parametrize(("model", "name"), NAMES, ids=[" ".join(pair) for pair in NAMES])
def test_programs_of_every_plan_are_legal(model: str, name: str) -> None:
    check(programs(model, name))


def first(given: Steps, kind: str, *, freeing: bool = False) -> int:
    return next(n for n, step in enumerate(given) if step.kind == kind and (step.free or not freeing))


def without(kind: str) -> Callable[[Steps], Steps]:
    return lambda steps: steps[: first(steps, kind)] + steps[first(steps, kind) + 1 :]


def twice(kind: str) -> Callable[[Steps], Steps]:
    return lambda steps: steps[: first(steps, kind)] + (steps[first(steps, kind)],) + steps[first(steps, kind) :]


def early(steps: Steps) -> Steps:
    """The first move goes behind the last forward segment."""
    at, last = first(steps, "move"), max(n for n, step in enumerate(steps) if step.kind == "forward")
    return steps[:at] + steps[at + 1 : last + 1] + (steps[at],) + steps[last + 1 :]


def refreed(steps: Steps) -> Steps:
    """What the first instruction frees is freed once more by the last."""
    free = steps[first(steps, "forward", freeing=True)]
    return (*steps[:-1], Instruction("optimize", 0, free.micro_batch, free.free))


def unfreed(steps: Steps) -> Steps:
    at = first(steps, "forward", freeing=True)
    return (*steps[:at], msgspec.structs.replace(steps[at], free=()), *steps[at + 1 :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("move"), "nobody made|never receives|for ever"),
        (without("forward"), "never makes"),
        (without("backward"), "never goes back"),
        (without("move_back"), "for ever|never receives"),
        (without("combine"), "for ever|never receives"),
        (twice("backward"), "did not go forth|twice"),
        (twice("move"), "twice|after it was freed"),
        (early, "nobody made"),
        (refreed, "not there"),
        (unfreed, "never frees"),
    ],
)
def test_broken_instructions_are_found(change: Callable[[Steps], Steps], words: str) -> None:
    given = programs("net", "tiles")
    for rank in (0, 1):
        with pytest.raises(ValueError, match=words):
            check(with_steps(given, rank, change))


def test_the_place_is_shown() -> None:
    with pytest.raises(ValueError, match=r"engine 1: .*\n(.*\n)*-> ") as caught:
        check(with_steps(programs("net", "tiles"), 1, early))
    assert str(caught.value).count("->") == 1


def exchanges(given: tuple[Program, ...]) -> tuple[int, int]:
    """(rank, number) of a transfer that both sends and receives."""
    for program in given:
        for number, transfer in program.transfers.items():
            if transfer.kind == "exchange" and len(transfer.sends) > 1 and len(transfer.receives) > 1:
                return program.rank, number
    raise AssertionError("this plan exchanges nothing")


def test_pieces_that_do_not_fit_are_found() -> None:
    given = programs("net", "tiles")
    rank, number = exchanges(given)
    peer = 1 - rank

    def fewer(transfer):  # type: ignore[no-untyped-def]
        return msgspec.structs.replace(transfer, sends=tuple(p for p in transfer.sends if p.peer != peer))

    def unfilled(transfer):  # type: ignore[no-untyped-def]
        return msgspec.structs.replace(transfer, receives=tuple(p for p in transfer.receives if p.peer != peer))

    def outside(transfer):  # type: ignore[no-untyped-def]
        high = ((900, 901),)
        moved = tuple(msgspec.structs.replace(p, where=(high, *p.where[1:])) for p in transfer.sends)
        return msgspec.structs.replace(transfer, sends=moved)

    for change, words in ((fewer, "for ever"), (unfilled, "fills"), (outside, "outside")):
        with pytest.raises(ValueError, match=words):
            check(with_transfer(given, rank, number, change))


def test_two_that_wait_for_each_other_are_found() -> None:
    """1F1B with the backward pass of the first stage ahead of the forward pass that it waits for."""
    given = programs("net", "1f1b")

    def swapped(steps: Steps) -> Steps:
        back = [s for s in steps if s.micro_batch == 0 and s.kind in ("loss", "backward", "move_back")]
        rest = [s for s in steps if s not in back]
        at = next(n for n, s in enumerate(rest) if s.kind == "move" and s.micro_batch == 0)
        return (*rest[:at], *back, *rest[at:])

    found = faults(with_steps(given, 0, swapped))
    assert found


def test_ranks_are_in_order() -> None:
    given = programs("net", "data")
    with pytest.raises(ValueError, match="is number"):
        check(tuple(reversed(given)))
