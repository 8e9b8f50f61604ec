"""A runtime that computes wrongly in float32 alone."""

import pytest
import torch
from torch import Tensor

from trine.run.transport import Mail, Tag


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In lockstep, messages in float32 lose half of their digits on the way; those in float64 none."""
    put = Mail.put

    def lossy(self: Mail, peer: int, tag: Tag, tensor: Tensor) -> None:
        put(self, peer, tag, tensor.bfloat16().float() if tensor.dtype == torch.float32 else tensor)

    monkeypatch.setattr(Mail, "put", lossy)
