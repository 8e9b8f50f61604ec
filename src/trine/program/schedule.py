"""In which order a stage runs its micro-batches (GPipe: Huang et al. 2019; 1F1B: Narayanan et al. 2019)."""

from typing import Literal

from trine.plan.plan import Schedule

Work = tuple[Literal["F", "B"], int]


def order(schedule: Schedule, stage: int, num_stages: int, micro_batches: int, *, training: bool) -> tuple[Work, ...]:
    """Forward and backward pieces of work of one stage, in order."""
    forward: list[Work] = [("F", m) for m in range(micro_batches)]
    backward: list[Work] = [("B", m) for m in range(micro_batches)]
    if not training:
        return tuple(forward)
    if schedule == "gpipe":
        return (*forward, *backward)
    warm = min(num_stages - stage - 1, micro_batches)
    result = forward[:warm]
    for m in range(micro_batches - warm):
        result += [forward[warm + m], backward[m]]
    return (*result, *backward[micro_batches - warm :])


def text(work: tuple[Work, ...]) -> str:
    """``"0F 1F 0B 1B"``."""
    return " ".join(f"{m}{kind}" for kind, m in work)


def parse(line: str) -> tuple[Work, ...]:
    """The inverse of :func:`text`; ValueError says which word is wrong."""
    result: list[Work] = []
    for word in line.split():
        if word[-1] not in "FB" or not word[:-1].isdigit():
            raise ValueError(f"'{word}' in a schedule: a word is a micro-batch and F or B, as in 2F")
        result.append(("F" if word[-1] == "F" else "B", int(word[:-1])))
    return tuple(result)
