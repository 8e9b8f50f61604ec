"""Every transfer of every plan: its way back is the adjoint of its way forth, on whole numbers."""

import pytest
import torch
from tests.program.small import programs
from tests.run.nets import NAMES, job
from torch import Tensor

from trine.program.program import Program, Tile
from trine.run.engine import Engine
from trine.run.transport import Mail

Tiles = dict[int, Tensor | None]


def draw(program: Program, tile: int | None, generator: torch.Generator) -> Tensor | None:
    if tile is None:
        return None
    return torch.randint(-9, 10, program.tiles[tile].local_shape, generator=generator).double()


def through(engines: list[Engine], number: int, given: Tiles, *, back: bool) -> Tiles:
    """One transfer, forth or back, of all engines in lockstep."""
    result: Tiles = {}
    running = {}
    for engine in engines:
        found = [t for t in engine.program.transfers.values() if t.number == number]
        for transfer in found:
            end = transfer.source if back else transfer.target
            like: Tile | None = None if end is None else engine.program.tiles[end]
            ways = (transfer.receives, transfer.sends) if back else (transfer.sends, transfer.receives)
            running[engine.program.rank] = engine.exchange(
                transfer, given[engine.program.rank], like, *ways, (number, back), back or transfer.add
            )
    while running:
        for rank in list(running):
            try:
                next(running[rank])
            except StopIteration as stop:
                result[rank] = stop.value
                del running[rank]
    return result


def inner(a: Tiles, b: Tiles) -> float:
    return sum(float((x * y).sum()) for rank, x in a.items() if x is not None and (y := b[rank]) is not None)


@pytest.mark.parametrize(("model", "name"), NAMES, ids=[" ".join(pair) for pair in NAMES])
def test_the_transpose_is_the_adjoint(model: str, name: str) -> None:
    """<move(x), y> = <x, move_back(y)> for any tiles x and y, equal copies or not."""
    generator = torch.Generator().manual_seed(0)
    boxes: dict = {}  # type: ignore[type-arg]
    made = programs(model, name)
    engines = [Engine(p, job(model).state(), Mail(p.rank, boxes)) for p in made]
    numbers = {t.number for p in made for t in p.transfers.values()}
    for number in sorted(numbers):
        ends = {p.rank: t for p in made for t in p.transfers.values() if t.number == number}
        x: Tiles = {rank: draw(made[rank], t.source, generator) for rank, t in ends.items()}
        y: Tiles = {rank: draw(made[rank], t.target, generator) for rank, t in ends.items()}
        forth, back = through(engines, number, x, back=False), through(engines, number, y, back=True)
        assert inner(forth, y) == inner(x, back), f"transfer {number}"
    assert not boxes
