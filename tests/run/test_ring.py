"""Ring attention: equal to one engine, from blocks that are narrower than all keys."""

import pytest
import torch
from msgspec.structs import replace
from tests.run.nets import PLANS, job, plan
from torch import nn

from trine.capture.model import make_model
from trine.errors import BadInput
from trine.plan.build import build
from trine.plan.plan import Plan
from trine.run.job import Job
from trine.run.judge import judge

NAMES = ["tiles", "tiles 3:2:1", "data x tiles", "stages x tiles"]


class Sentences(nn.Module):
    """Attention to another sequence, with a mask of what is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.pair = nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, x: torch.Tensor, other: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q = self.query(x).unflatten(2, (2, 4)).transpose(1, 2)
        k, v = (t.unflatten(2, (2, 4)).transpose(1, 2) for t in self.pair(other).chunk(2, 2))
        mask = seen[:, None, None, :]
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return mixed.transpose(1, 2).flatten(2)


def rings(found: Plan, made: Job) -> int:
    """Blocks of attention that one engine runs."""
    program = made.compiled(found).programs()[0]
    return sum(op.target == "trine.attention_block" for s in program.segments.values() for op in s.operators)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", NAMES)
def test_a_ring_equals_one_engine(name: str, training: bool) -> None:
    found = replace(plan("language", name, training), attention="ring")
    verdict = judge(job("language", training), found, "lockstep", 2)
    worst = verdict.worst()
    assert verdict.equal, f"{worst.kind} of step {worst.step + 1}: {worst.value:.1e} at {worst.where}"
    if not training:  # attention that drops weights goes no ring
        assert rings(found, job("language", False)) >= 2
        assert "ring" in found.describe()


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_it_runs_on_engines(on: str) -> None:
    found = replace(plan("language", "tiles", False), attention="ring")
    assert judge(job("language", False), found, on, 1).equal


@pytest.mark.parametrize("size", [2, 3])
def test_other_keys_and_a_mask(size: int) -> None:
    torch.manual_seed(0)
    seen = torch.ones(2, 11, dtype=torch.bool)
    seen[0, 7:] = False
    seen[1] = False  # a row that sees nothing
    inputs = {"x": torch.randn(2, 7, 8), "other": torch.randn(2, 11, 8), "seen": seen}
    module = Sentences()
    made = Job(make_model(module, inputs, torch.randn(2, 7, 8), nn.functional.mse_loss), True, float64=True)
    found = build(made.graph(), tensor=(size,), cuts=("sequence",), batch=2, attention="ring")
    assert judge(made, found, "lockstep", 2).equal
    assert rings(found, made) == size


def test_blocks_are_narrower_than_all_keys() -> None:
    made = job("language", False)
    found = replace(plan("language", "tiles", False), attention="ring")
    program = made.compiled(found).programs()[0]
    blocks = [op for s in program.segments.values() for op in s.operators if op.target == "trine.attention_block"]
    widths = [program.tiles[int(op.args["key"][2:])].local_shape[-2] for op in blocks]
    assert max(widths) < 7


def test_where_no_rows_are_cut_it_is_refused() -> None:
    with pytest.raises(BadInput, match="no axis of the plan cuts rows"):
        build(job("language").graph(), **PLANS["language"]["features"], batch=5, attention="ring")
