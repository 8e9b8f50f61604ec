"""Scenario: what the engines are for, and what is then wanted of them."""

from typing import Literal

import msgspec

Kind = Literal["training", "cloud", "device"]
KINDS: tuple[Kind, ...] = ("training", "cloud", "device")
TITLES: dict[Kind, str] = {
    "training": "training", "cloud": "cloud inference", "device": "on-device inference",
}  # fmt: skip
BATCHES: dict[Kind, int] = {"training": 8, "cloud": 8, "device": 1}


class Scenario(msgspec.Struct, frozen=True):
    """One use of a model.

    training: the time of a step over the batch.  cloud: requests a second when ``batch`` requests are always there.
    device: the time of one request, alone.
    """

    kind: Kind
    batch: int

    @property
    def training(self) -> bool:
        return self.kind == "training"

    @property
    def unit(self) -> str:
        """What a throughput counts."""
        return "samples/s" if self.training else "requests/s"

    def throughput_per_s(self, time_s: float) -> float:
        """Samples or requests a second, from the time of a step over the batch."""
        return self.batch / time_s
