"""Halo volumes are minimal: what one forward pass of two tiles by height exchanges, counted from the Programs."""

import pytest

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.graph.graph import ITEM_BYTES
from trine.graph.part import volume
from trine.plan.build import build
from trine.run.job import Job


@pytest.mark.parametrize(("name", "most_bytes"), [("vgg16", 1_066_240), ("resnet50", 597_000)])
def test_halo_volume(name: str, most_bytes: int) -> None:
    """At 224 pixels in float32, evaluation mode, the halo of the input image included."""
    job = Job(load_model(f"torchvision:{name}", Wishes(size=224, batch=1, meta=True), 1, meta=True), training=False)
    plan = build(job.graph(), tensor=(2,), cuts=("height",), batch=1)
    moved = 0
    for program in job.compiled(plan).programs():
        for transfer in program.transfers.values():
            assert transfer.kind in ("exchange", "all_reduce")  # nothing is gathered; the head sums its parts
            if transfer.kind == "exchange" and transfer.source is not None:
                item = ITEM_BYTES[program.tiles[transfer.source].dtype]
                moved += sum(volume(piece.where) * item for piece in transfer.sends if piece.peer != program.rank)
    assert 0 < moved <= most_bytes
