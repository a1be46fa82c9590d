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
time would have been longer. The quantiles are those of the Kaplan-Meier estimator, so that censored
scores do not make the bounds too low.

Must never: do I/O, read a clock, or grow with the number of scores.
"""

from __future__ import annotations

from bisect import bisect_left, insort
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


class ConformalInterval:
    """The interval of the scores of one kind of requests."""

    __slots__ = ("_cut", "_is_cut", "_next", "_ring", "_shown", "high_level", "low_level")

    def __init__(self) -> None:
        # The fractions of the scores that are below the lower bound and above the upper bound.
        self.low_level = MISSES
        self.high_level = MISSES
        self._shown: list[float] = []  # The scores of first contents, sorted.
        self._cut: list[float] = []  # The censored scores, sorted.
        # All scores in the order of their arrival. When the window is full, a new score replaces
        # the oldest one.
        self._ring: list[float] = []
        self._is_cut: list[bool] = []
        self._next = 0

    def copy(self) -> ConformalInterval:
        """Return a copy with the same scores and levels."""
        made = ConformalInterval()
        made.low_level = self.low_level
        made.high_level = self.high_level
        made._shown = self._shown[:]
        made._cut = self._cut[:]
        made._ring = self._ring[:]
        made._is_cut = self._is_cut[:]
        made._next = self._next
        return made

    @property
    def is_known(self) -> bool:
        """Whether there are enough scores for an interval."""
        return len(self._shown) >= LEAST

    def add(self, score: float, is_cut: bool = False) -> None:
        """Add a score. `is_cut` marks a censored score: the true score is larger.

        A censored score below all uncensored ones contains no information and is left out.
        """
        if is_cut and (not self._shown or score < self._shown[0]):
            return
        insort(self._cut if is_cut else self._shown, score)
        ring = self._ring
        if len(ring) < WINDOW:
            ring.append(score)
            self._is_cut.append(is_cut)
            return
        index = self._next
        old = self._cut if self._is_cut[index] else self._shown
        del old[bisect_left(old, ring[index])]
        ring[index] = score
        self._is_cut[index] = is_cut
        self._next = (index + 1) % WINDOW

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
        if not self._cut:
            return self._shown[len(self._shown) // 2]
        return self._rank(0.5, False)

    def low(self) -> float:
        """The lower bound. `is_known` must be true."""
        return self._rank(self.low_level, True)

    def high(self) -> float:
        """The upper bound. `is_known` must be true."""
        return self._rank(1.0 - self.high_level, False)

    def _rank(self, level: float, is_low: bool) -> float:
        """The score with the rank `level` * (n + 1).

        If `is_low` is set, a fractional rank is rounded down to a score, otherwise up.
        """
        shown, cut = self._shown, self._cut
        size = len(shown) + len(cut)
        # The rank as a fraction of the scores. The tiny number is for rounding errors.
        wanted = level * (size + 1) / size + (1e-9 if is_low else -1e-9)
        # The fraction of the distribution up to the largest uncensored score.
        reached = 1.0
        if not cut:
            index = int(wanted * size)  # The rank, rounded down.
            if is_low and index >= 1:
                return shown[min(index, size) - 1]
            if not is_low and wanted <= 1.0:
                return shown[index if index < wanted * size else max(0, index - 1)]
        else:
            found, reached = self._walk(wanted, is_low)
            if found >= 0:
                return shown[found]
        if is_low:
            return shown[0] - STRETCH * (1.0 / (size + 1) - level)
        last = shown[-1] if not cut else max(shown[-1], cut[-1])
        return last + STRETCH * max(0.0, level - reached * size / (size + 1))

    def _walk(self, wanted: float, is_low: bool) -> tuple[int, float]:
        """Find the score at the fraction `wanted` of the Kaplan-Meier distribution.

        Returns the index of the score in `_shown`, below 0 if there is no such score, and the
        fraction of the distribution up to the last score that was looked at.
        """
        shown, cut = self._shown, self._cut
        at_risk = float(len(shown) + len(cut))
        survives = 1.0
        passed = 0  # Number of censored scores below the current score.
        for index in range(len(shown)):
            score = shown[index]
            while passed < len(cut) and cut[passed] < score:
                passed += 1
                at_risk -= 1.0
            survives *= 1.0 - 1.0 / at_risk
            at_risk -= 1.0
            share = 1.0 - survives
            if is_low and share > wanted:
                return index - 1, share
            if not is_low and share >= wanted:
                return index, share
        return -1, 1.0 - survives
