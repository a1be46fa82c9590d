"""Learns an interval that contains the error of 90 % of all predictions, even if errors drift.

The error of a prediction is its score, log(actual / predicted). The interval has a lower and an
upper bound for the score of the next request:

- The bounds are quantiles of the last `WINDOW` scores, with the ranks of split conformal
  prediction, (n + 1) * level. If the scores come in random order, the interval contains exactly the
  intended fraction of scores, for any distribution.
- The order is not random when the distribution drifts. So each bound has a level, which is
  corrected after each score. The level falls after a miss (a score beyond the bound) and rises
  otherwise (adaptive conformal inference, Gibbs and Candes, NeurIPS 2021, equation 2). In the long
  run, the fraction of misses is then `MISSES` on each side, for any sequence of scores. A level
  below 0 moves the bound beyond the most extreme score seen.

A request that ended without content has a censored score: its true score is larger, because its
time would have been longer. The censored score is replaced by one of the known scores above it,
each in turn (Efron's redistribution to the right, 1967). So censored scores do not make the bounds
too low. If no score is above it, the true time is assumed to have a Pareto tail with exponent 2, as
in `policies/hedging/curve.py`.

Must never: do I/O, read a clock, or grow with the number of scores.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import ceil, log
from typing import Final

COVERAGE: Final = 0.9
MISSES: Final = (1.0 - COVERAGE) / 2.0  # The intended fraction of misses on each side.
WINDOW: Final = 256  # Maximum number of kept scores.
# With at least this many scores (n), the ranks 0.05 (n + 1) and 0.95 (n + 1) are within 1 and n.
LEAST: Final = 20
RATE: Final = 0.02  # Factor on the correction of a level by one score.
# With this many pending intervals, a correction is half as large. The pending intervals were given
# before a miss was known, so they will probably be missed as well and correct the level again.
PENDING: Final = 10.0
LEVEL_LEAST: Final = -0.2
LEVEL_MOST: Final = 0.45
# If a level asks for a rank beyond the most extreme score, the bound lies outside that score, by
# this much per unit of level.
STRETCH: Final = 4.0
# The fractional parts of the multiples of this number are spread evenly between 0 and 1.
_GOLDEN: Final = 0.618033988749895


class ConformalInterval:
    """The interval of the scores of one kind of requests."""

    __slots__ = ("_learned", "_next", "_ring", "_scores", "_turn", "high_level", "low_level")

    def __init__(self) -> None:
        # The fractions of the scores that are below the lower bound and above the upper bound.
        self.low_level = MISSES
        self.high_level = MISSES
        self._scores: list[float] = []  # The kept scores, sorted.
        # All scores in the order of their arrival. When the window is full, a new score replaces
        # the oldest one.
        self._ring: list[float] = []
        self._next = 0
        self._learned = 0  # Number of scores so far that were not censored.
        self._turn = 0.0  # The place of the last replacement among the scores above, 0 to 1.

    def copy(self) -> ConformalInterval:
        made = ConformalInterval()
        made.low_level = self.low_level
        made.high_level = self.high_level
        made._scores = self._scores[:]
        made._ring = self._ring[:]
        made._next = self._next
        made._learned = self._learned
        made._turn = self._turn
        return made

    @property
    def is_known(self) -> bool:
        """Whether there are enough scores for an interval."""
        return self._learned >= LEAST

    def add(self, score: float, is_cut: bool = False) -> None:
        """Add a score. `is_cut` marks a censored score: the true score is larger.

        A censored score below all uncensored ones contains no information and is left out.
        """
        scores, ring = self._scores, self._ring
        if not is_cut:
            self._learned += 1
        elif not scores or score < scores[0]:
            return
        else:
            score = self._larger(score)
        insort(scores, score)
        if len(ring) < WINDOW:
            ring.append(score)
            return
        index = self._next
        del scores[bisect_left(scores, ring[index])]
        ring[index] = score
        self._next = (index + 1) % WINDOW

    def _larger(self, score: float) -> float:
        """Return the score that replaces a censored one."""
        scores = self._scores
        self._turn = (self._turn + _GOLDEN) % 1.0
        index = bisect_right(scores, score)
        if index < len(scores):
            return scores[index + int(self._turn * (len(scores) - index))]
        return score - 0.5 * log(1.0 - self._turn)

    def judged(self, is_below: bool, is_above: bool, pending: int = 0) -> None:
        """Correct the levels after a score became known for which an interval had been given.

        `is_below` and `is_above` tell whether the score missed that interval. `pending` is the
        number of given intervals whose scores are not known yet.
        """
        rate = RATE / (1.0 + pending / PENDING)
        low = self.low_level + rate * (MISSES - (1.0 if is_below else 0.0))
        high = self.high_level + rate * (MISSES - (1.0 if is_above else 0.0))
        self.low_level = max(LEVEL_LEAST, min(LEVEL_MOST, low))
        self.high_level = max(LEVEL_LEAST, min(LEVEL_MOST, high))

    def middle(self) -> float:
        """The median score. `is_known` must be true."""
        return self._scores[len(self._scores) // 2]

    def low(self) -> float:
        """The lower bound, a fractional rank rounded down. `is_known` must be true."""
        scores, level = self._scores, self.low_level
        size = len(scores)
        rank = int(level * (size + 1) + 1e-9)
        if rank >= 1:
            return scores[min(rank, size) - 1]
        return scores[0] - STRETCH * (1.0 / (size + 1) - level)

    def high(self) -> float:
        """The upper bound, a fractional rank rounded up. `is_known` must be true."""
        scores, level = self._scores, 1.0 - self.high_level
        size = len(scores)
        rank = ceil(level * (size + 1) - 1e-9)
        if rank <= size:
            return scores[max(rank, 1) - 1]
        return scores[-1] + STRETCH * (level - size / (size + 1))
