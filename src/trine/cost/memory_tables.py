"""Measured times that no operator of a model has: copying, adding and clearing memory, an optimizer's step, and what a
segment and a message cost besides.

They are kept among the operators of a Profile under keys of their own.  Those that depend on size were measured at a
few sizes; between two of them a straight line in the logarithms is taken, as for links.
"""

import msgspec

from trine.cost.profile import LinkTable, Profile

SIZES_BYTES = (*(4**k * 4096 for k in range(7)), 40 * 2**20, 64 * 2**20)
"""4 KB to 64 MB.  Beyond 32 MB the C library asks the system for fresh memory each time."""

COPY_KINDS = ("copy", "add", "zero")
MANY_TENSORS, MANY_BYTES = 64, 64 * 1024
LARGE_TENSORS, LARGE_BYTES = 8, 8 * 2**22
"""The two sets on which an optimizer is timed: many small tensors, and a few large ones (bytes of the whole set)."""


SEGMENT = "segment"
"""Key of what a segment adds to its operators: forward (inputs detached, gradient edges kept) and backward (one call of
``torch.autograd.grad``)."""

MESSAGE = "message"
"""Key of what a message between threads costs: putting it (forward) and getting one that is there (backward)."""


class SizeTable(msgspec.Struct, frozen=True):
    """Seconds by bytes, into memory that is new to the process (forward) and that was freed just before (backward)."""

    fresh: LinkTable
    reused: LinkTable

    def time_s(self, num_bytes: int, *, fresh: bool) -> float:
        """Seconds for that many bytes; nothing takes no time."""
        return (self.fresh if fresh else self.reused).time_s(num_bytes) if num_bytes else 0.0


class OptimizerCost(msgspec.Struct, frozen=True):
    """An optimizer's step takes ``per_tensor_s`` for each tensor and ``per_byte_s`` for each byte of weights."""

    per_tensor_s: float
    per_byte_s: float

    def time_s(self, num_tensors: int, num_bytes: int) -> float:
        return num_tensors * self.per_tensor_s + num_bytes * self.per_byte_s


def copy_key(kind: str, num_bytes: int) -> str:
    """Under which key a copy, addition or clearing of that many bytes is kept."""
    return f"memory {kind} {num_bytes}"


def optimizer_key(name: str, num_tensors: int) -> str:
    """Under which key an optimizer's step on one of the two sets is kept."""
    return f"optimizer {name} {num_tensors}"


def size_table(profile: Profile, kind: str, concurrency: int) -> SizeTable | None:
    """The table of one kind at that concurrency; None if it was not measured."""
    times = {size: profile.timing(copy_key(kind, size), concurrency) for size in SIZES_BYTES}
    known = {size: timing for size, timing in times.items() if timing is not None}
    if not known:
        return None
    ranks = max(concurrency, 2)
    fresh = LinkTable.measured(ranks, {size: timing.forward_s for size, timing in known.items()})
    return SizeTable(fresh, LinkTable.measured(ranks, {size: timing.backward_s for size, timing in known.items()}))


def optimizer_cost(profile: Profile, name: str, concurrency: int) -> OptimizerCost | None:
    """The two numbers of an optimizer at that concurrency; None if it was not measured."""
    many = profile.timing(optimizer_key(name, MANY_TENSORS), concurrency)
    large = profile.timing(optimizer_key(name, LARGE_TENSORS), concurrency)
    if many is None or large is None:
        return None
    per_byte_s = (large.forward_s - many.forward_s * LARGE_TENSORS / MANY_TENSORS) / LARGE_BYTES
    return OptimizerCost(many.forward_s / MANY_TENSORS, max(per_byte_s, 0.0))
