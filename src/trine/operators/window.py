"""Windows of convolutions and pools: their geometry, and the padding of a piece.

A piece that reaches both borders of the input pads as the operator itself does; any other piece gets as explicit
padding what ``Window.raw`` (o·stride − pad … + dilation·(kernel − 1)) has outside the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trine.graph.part import Part, size
from trine.operators.relation import Window


@dataclass(frozen=True)
class Padding:
    """Padding of a piece: what must be added before, and what the operator's own argument says, per dimension."""

    explicit: tuple[tuple[int, int], ...]
    own: tuple[int, ...]

    def as_pad(self, num_after: int = 0) -> list[int]:
        """The argument of constant_pad_nd: last dimension first; ``num_after`` dimensions follow unpadded."""
        result = [0] * (2 * num_after)
        for left, right in reversed(self.explicit):
            result += [left, right]
        return result

    @property
    def is_own(self) -> bool:
        return all(pair == (0, 0) for pair in self.explicit)


def padding_of(windows: Sequence[Window], ins: Sequence[Part], outs: Sequence[Part], limit: Sequence[int]) -> Padding:
    """How to pad the tiles ``ins`` so that the windows make exactly ``outs``.

    limit: the most padding that the operator takes as its own argument.
    """
    explicit, own = [], []
    for window, have, make, most in zip(windows, ins, outs, limit, strict=True):
        low, high = window.raw(make[0][0], make[-1][1])
        left, right = (have[0][0] - low, high - have[-1][1]) if have else (high - low, 0)
        reach = window.dilation * (window.kernel - 1) + 1
        made = (size(have) + 2 * left - reach) // window.stride + 1
        if have and 0 <= left <= most and made == size(make):
            explicit.append((0, 0))
            own.append(left)
        else:
            explicit.append((left, right))
            own.append(0)
    return Padding(tuple(explicit), tuple(own))
