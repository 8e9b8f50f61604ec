"""Programs of the small nets under their plans, and changed copies of them."""

from collections.abc import Callable
from functools import cache

import msgspec
from tests.run.nets import job, plan

from trine.program.compile import Compiled
from trine.program.program import Instruction, Program, Transfer


@cache
def compiled(model: str, name: str) -> Compiled:
    """The flows of a plan by name."""
    return job(model).compiled(plan(model, name))


@cache
def programs(model: str, name: str) -> tuple[Program, ...]:
    """The Programs of a plan by name."""
    return compiled(model, name).programs()


Steps = tuple[Instruction, ...]


def with_steps(given: tuple[Program, ...], rank: int, change: Callable[[Steps], Steps]) -> tuple[Program, ...]:
    """Programs of which one has its instructions changed."""
    new = msgspec.structs.replace(given[rank], instructions=change(given[rank].instructions))
    return (*given[:rank], new, *given[rank + 1 :])


def with_transfer(
    given: tuple[Program, ...], rank: int, number: int, change: Callable[[Transfer], Transfer]
) -> tuple[Program, ...]:
    """Programs of which one has a transfer changed."""
    transfers = {**given[rank].transfers, number: change(given[rank].transfers[number])}
    new = msgspec.structs.replace(given[rank], transfers=transfers)
    return (*given[:rank], new, *given[rank + 1 :])
