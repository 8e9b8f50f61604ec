"""A profile with round numbers."""

import pytest

from trine.cost.profile import Launch, LinkTable, Profile, Rates


@pytest.fixture
def profile() -> Profile:
    def rates(concurrency: int, factor: float) -> Rates:
        flops = {"float32": 2e9 * factor}
        return Rates(
            concurrency=concurrency,
            matmul_flops_per_s=flops,
            conv_flops_per_s=flops,
            depthwise_flops_per_s=flops,
            stream_bytes_per_s=1e9 * factor,
        )

    table = LinkTable(num_ranks=2, sizes_bytes=(1000, 10_000, 1_000_000), times_s=(1e-4, 2e-4, 1e-2))
    return Profile(
        fingerprint="0123",
        machine="2 x round",
        date="2026-01-01T00:00:00+00:00",
        torch_version="2.14",
        num_threads=2,
        rates=(rates(1, 1.0), rates(4, 0.5)),
        launches=(
            Launch(concurrency=1, forward_s=1e-6, backward_s=2e-6, segment_s=2e-5),
            Launch(concurrency=4, forward_s=2e-6, backward_s=4e-6, segment_s=4e-5),
        ),
        links={"processes": {"p2p": table, "all_reduce": table}},
    )
