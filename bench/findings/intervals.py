"""Confidence intervals of paired figures, which show whether two contestants really differ.

A *contestant* is a router or a setting that a bench compares with others. A *pair* is the same
figure of two contestants, measured with the same seed or in the same round. Pairs are resampled
with replacement, and the interval is between two percentiles of the resampled values (B. Efron,
"Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979). Both figures of a
pair are drawn together, so an effect of the seed on both contestants cancels.

A ratio is the mean of one contestant's figures divided by the mean of the other's. A goal is met if
the whole interval is within the limit, missed if the whole interval exceeds the limit by more than
the *noise*, and open otherwise. The noise is the relative difference between two measurements of
the same contestant with different seeds (an A/A comparison).

The functions are pure and repeatable: the same figures give the same interval. Must never judge
fewer than `PAIRS_MIN` pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

PAIRS_MIN: Final = 5
LEVEL: Final = 0.95  # share of the resampled values that the interval contains
DRAWS: Final = 4000
MET, MISSED, OPEN = "met", "missed", "open"


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval, which contains the share `LEVEL` of the resampled values."""

    low: float
    value: float
    high: float
    pairs: int

    @property
    def is_enough(self) -> bool:
        """Whether there are enough pairs to judge a goal by this interval."""
        return self.pairs >= PAIRS_MIN

    def text(self, digits: int = 2) -> str:
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the mean of `ours` divided by the mean of `theirs`, with its interval.

    Items with the same index are a pair. All figures must be above 0.

    Raises ValueError if there is no pair, if the numbers of figures differ, or if a figure is not
    above 0.
    """
    if min((*ours, *theirs), default=0.0) <= 0.0:
        raise ValueError("figures must be above 0")
    return _resampled(ours, theirs, lambda mine, other: mine / other)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the mean of `ours` minus the mean of `theirs`, with its interval.

    Items with the same index are a pair.

    Raises ValueError if there is no pair, or if the numbers of figures differ.
    """
    return _resampled(ours, theirs, lambda mine, other: mine - other)


def noise(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the noise: the largest distance from 1 of the ratio of two runs of one contestant.

    `first` and `second` are the figures of the two runs, with different seeds. The distance is that
    of the farther bound of the ratio's interval. Raises ValueError as `ratio` does.
    """
    found = ratio(first, second)
    return max(found.high - 1.0, 1.0 - found.low)


def judged(found: Interval, limit: float, noise: float = 0.0) -> str:
    """Return `MET`, `MISSED` or `OPEN` for a figure that should not exceed `limit`."""
    if not found.is_enough:
        return OPEN
    if found.high <= limit:
        return MET
    return MISSED if found.low > limit + noise else OPEN


def _resampled(
    ours: Sequence[float], theirs: Sequence[float], of: Callable[[float, float], float]
) -> Interval:
    count = len(ours)
    if not count or count != len(theirs):
        raise ValueError(f"figures must come in pairs, not {count} and {len(theirs)}")
    rng = Random(1)
    values = []
    for _ in range(DRAWS):
        drawn = rng.choices(range(count), k=count)
        values.append(of(fmean(ours[one] for one in drawn), fmean(theirs[one] for one in drawn)))
    values.sort()
    tail = (1.0 - LEVEL) / 2.0
    low, high = (values[round(share * (DRAWS - 1))] for share in (tail, 1.0 - tail))
    return Interval(low, of(fmean(ours), fmean(theirs)), high, count)
