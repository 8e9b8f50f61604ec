"""Two processes that exchange every kind of tensor; a failed assertion is their exit status."""

from datetime import timedelta

import torch
import torch.distributed as dist

from trine.run.gloo import Gloo, make_groups
from trine.run.routes import Route

TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64,
)  # fmt: skip


def talk(rank: int, store: str) -> None:
    """Send to the other, receive from it, and add up with it."""
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    transport = Gloo(rank, Route((), {}, 1), make_groups([(0, 1)]))
    for number, dtype in enumerate(TYPES):
        whole = torch.arange(12).reshape(3, 4).to(dtype)
        for micro_batch, tensor in enumerate((whole, whole.t(), whole[:, 1:3], whole[0, 1], whole[:0])):
            tag = ("f", 10 * number + micro_batch, None)
            transport.send(1 - rank, tag, tensor)
            (other,) = outcome(transport.get(1 - rank, tag, torch.empty(tensor.shape, dtype=dtype)))
            assert torch.equal(other, tensor), (dtype, tensor.shape)
            (total,) = outcome(transport.all_reduce(tensor, (0, 1), ("b", 10 * number + micro_batch, None)))
            assert torch.equal(total, tensor + tensor), (dtype, tensor.shape)
    transport.finish()
    assert not transport.sent
    assert not transport.posted
    assert transport.bytes_sent == transport.bytes_received
    dist.destroy_process_group()


def outcome(waiting):
    """What a generator returns, in a tuple; ``StopIteration`` carries it."""
    try:
        next(waiting)
    except StopIteration as end:
        return (end.value,)
    raise AssertionError("a transport of processes never yields")
