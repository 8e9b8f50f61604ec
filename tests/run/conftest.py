"""Small tensors are quicker on one thread."""

import pytest
import torch
from tests.run.lossy import rounded as rounded


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
