"""How far predictions are from measurements: relative errors of a group of rows, in the field's usual figures."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec
import numpy as np


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what was measured, and what was predicted or the reason why nothing was.

    group: the rows that it is judged with; use: see ``tables.py``; scale: the constant of its group that the prediction
    contains; beside: what the simple rule predicts that the group
    is held against; choice: rows of one choice are different plans for the same work on the same engines (empty: none).
    """

    file: str
    row: int
    group: str
    unit: str
    measured: float
    predicted: float | None = None
    reason: str = ""
    use: str = ""
    scale: float | None = None
    beside: float | None = None
    choice: str = ""
    label: str = ""
    parts: dict[str, float] = {}

    @property
    def error(self) -> float | None:
        """Predicted over measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def scored(self) -> bool:
        """Whether it counts: predicted, and nothing was fitted on it."""
        return self.predicted is not None and not self.use


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a group: mean, 90th percentile and largest of the absolute relative errors, their mean with sign,
    Spearman's rank correlation, and regret: how much slower, in the mean over ``num_choices``, the plan is that is
    predicted to be the fastest than the one that was.  None: too few rows."""

    n: int
    mean: float
    p90: float
    max: float
    bias: float
    rank_correlation: float | None
    regret: float | None
    num_choices: int
    beside: float | None


def score(rows: Sequence[Outcome]) -> Score | None:
    """The figures of the rows that are scored; None if there is none."""
    scored = [row for row in rows if row.scored]
    if not scored:
        return None
    errors = np.array([row.error for row in scored])
    regrets = list(_regrets(scored))
    rivals = [row.beside / row.measured - 1 for row in scored if row.beside is not None]
    return Score(
        n=len(scored),
        mean=float(np.abs(errors).mean()),
        p90=float(np.percentile(np.abs(errors), 90)),
        max=float(np.abs(errors).max()),
        bias=float(errors.mean()),
        rank_correlation=rank_correlation([row.predicted for row in scored], [row.measured for row in scored]),
        regret=float(np.mean(regrets)) if regrets else None,
        num_choices=len(regrets),
        beside=float(np.abs(rivals).mean()) if rivals else None,
    )


def with_scales(rows: Sequence[Outcome]) -> list[Outcome]:
    """The rows, each times the one constant of its group where rows are marked to give it: the median of measured over
    predicted.  ``parts`` stay as the model gives them."""
    scales: dict[Hashable, float] = {}
    for group, members in together(rows, lambda row: row.group).items():
        given = [row.measured / row.predicted for row in members if row.use == "scale" and row.predicted]
        if given:
            scales[group] = median(given)
    return [_scaled(row, scales.get(row.group)) for row in rows]


def _scaled(row: Outcome, by: float | None) -> Outcome:
    if by is None or row.predicted is None:
        return row
    return msgspec.structs.replace(row, predicted=row.predicted * by, scale=by)


def rank_correlation(left: Sequence[Any], right: Sequence[Any]) -> float | None:
    """Spearman's: the correlation of the ranks, equal values sharing their mean rank.  None for fewer than 3 rows or
    where all are equal."""
    if len(left) < 3 or len(set(left)) == 1 or len(set(right)) == 1:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Sequence[Any]) -> Any:
    _, places, counts = np.unique(np.array(values, dtype=float), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _regrets(rows: Sequence[Outcome]) -> Iterable[float]:
    for same in together(rows, lambda row: row.choice).values():
        if same[0].choice and len({row.label for row in same}) > 1:
            chosen = min(same, key=lambda row: row.predicted or 0.0)
            yield chosen.measured / min(row.measured for row in same) - 1


def together(rows: Iterable[Outcome], key: Any) -> Mapping[Hashable, list[Outcome]]:
    """The rows by what ``key`` says of each, in the order of their first ones."""
    found: dict[Hashable, list[Outcome]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
