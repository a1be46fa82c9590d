"""Learns a replica's speed, as a factor on the predicted time to first content of its pool.

A fleet may have several GPU types. One fitted line (`ttfts.py`) cannot predict the times of all
types. The slower replicas would always be late: all their requests would be copied and lose to the
copies, and the replicas would become suspect. So each replica has a factor, learned from the times
of its own answers relative to the prediction of the line.

One answer cannot distinguish a slow GPU type from a temporary slowdown. The time of the change can
distinguish them:

- A GPU type does not change. So the replica's first answers set the factor at once: the factor is
  the median of the first `FIRST` answers, moved towards 1 while fewer answers have come.
- A slowdown is a change in the replica's own history. So later the factor changes slowly, whatever
  the rate of requests: it doubles in `DOUBLING_S` at the earliest. A replica that becomes ten times
  as slow is late for about a quarter of an hour. After that, its factor has adapted.
- No replica is faster than its GPU type. So `FIRST` answers in a row that took less than `CLEARLY`
  of the predicted time set the factor again: the earlier answers must have come during a slowdown.

An attempt that ended without content counts as slower than the factor if it had waited for longer
than predicted; otherwise it does not count. The factor is a median of ratios, so single slow
answers do not change it.

Only the product of the line's prediction and the factor can be observed. So the factor is moved
towards 1 by a small amount; otherwise all factors of a pool could drift together. The error is
small: a few percent for a GPU type that is three times as slow.

A replica that serves several models has one factor for all of them.

Must never: read a clock, or keep more than `FIRST` numbers.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from router.dispatch.hedging.copy_price import RecentWork

FIRST: Final = 8  # Number of answers that set the factor at once.
MOST: Final = 8.0  # The largest factor; the smallest factor is 1/MOST.
DOUBLING_S: Final = 300.0
# An answer changes the factor in proportion to the time since the previous answer, but no more than
# for this many seconds.
STEP_LONGEST_S: Final = 10.0
CLEARLY: Final = 2.0 / 3.0
_RATE: Final = log(2.0) / DOUBLING_S
_LEAN: Final = 0.05 * _RATE  # The rate at which the factor's logarithm moves towards 0.
_MOST_LOG: Final = log(MOST)
_CLEARLY_LOG: Final = log(CLEARLY)


class Speed:
    """The speed factor of one replica. Times are monotonic seconds."""

    __slots__ = ("_answers", "_at", "_log", "_ratios", "factor")

    def __init__(self) -> None:
        # The factor 3.0 means that the replica takes three times as long as the pool's fitted line
        # predicts.
        self.factor = 1.0
        self._log = 0.0  # The logarithm of the factor.
        self._answers = 0  # Number of answers so far; answers beyond FIRST are not counted.
        # Logarithms of the ratios of the first answers; later, of consecutive quick answers.
        self._ratios: list[float] = []
        self._at = 0.0  # Time of the latest sample, in monotonic seconds.

    def shown(self, took_s: float, line_s: float, now: float) -> None:
        """Learn from a first content for which the pool's fitted line had predicted `line_s`."""
        self._seen(log(max(took_s, 1e-9) / line_s), now)

    def cut(self, waited_s: float, line_s: float, now: float) -> None:
        """Learn from an attempt that ended after `waited_s` without content."""
        ratio = log(max(waited_s, 1e-9) / line_s)
        if ratio > self._log:
            self._seen(ratio, now)

    def _seen(self, ratio: float, now: float) -> None:
        elapsed_s = min(max(0.0, now - self._at), STEP_LONGEST_S)
        self._at = now
        if self._answers < FIRST:
            self._answers += 1
            self._ratios.append(ratio)
            known = 1.0 if self._answers == FIRST else self._answers / (self._answers + 1.0)
            self._set(known * self._median())
            if self._answers == FIRST:
                self._ratios.clear()
            return
        off = ratio - self._log
        if off < _CLEARLY_LOG:
            self._ratios.append(ratio)
            if len(self._ratios) == FIRST:
                self._set(self._median())
                self._ratios.clear()
                return
        else:
            self._ratios.clear()
        step = _RATE * elapsed_s
        lean = _LEAN * elapsed_s * self._log
        self._set(self._log + min(max(off, -step), step) - lean)

    def _median(self) -> float:
        ranked = sorted(self._ratios)
        # Of two middle values, the lower one is used, because slow answers are more often outliers.
        return ranked[(len(ranked) - 1) // 2]

    def _set(self, log_factor: float) -> None:
        self._log = min(max(log_factor, -_MOST_LOG), _MOST_LOG)
        self.factor = exp(self._log)


class Speeds:
    """The speed factors of one replica for streams and for whole answers, and its recent work.

    The two factors are separate, because prefill and decode differ in speed.
    """

    __slots__ = ("streams", "wholes", "work")

    def __init__(self) -> None:
        self.streams = Speed()
        self.wholes = Speed()
        self.work = RecentWork()
