"""How fast a replica is for its pool: a factor on the pool's predicted time to first content.

A fleet may mix GPU types. One line cannot predict for both, and the slower ones would be late for
ever: copies of all their requests, lost races, suspicion. So each replica has a factor, learned
from what its own attempts took over the line.

A slow kind and a replica that stumbles look alike in one answer. What tells them apart is time:

- A kind is what the replica has always been. So its first answers set the factor at once: the
  median of up to `FIRST`, taken towards 1 while there are fewer.
- A stumble is a change against the replica's own history. So later the factor follows slowly,
  whatever the rate of requests: it doubles in `DOUBLING_S` at most. A replica that becomes ten
  times as slow is late for about a quarter of an hour; if it stays so slow, that is its kind.
- No replica is faster than its kind. So `FIRST` answers in a row that took less than `CLEARLY` of
  what was predicted set the factor anew: the earlier answers came during a stumble.

An attempt that was cut short counts as slower than the factor if it had waited for longer, and as
nothing else. The factor is a median of ratios: single stragglers do not move it.

Only the product of line and factor can be observed. So the factor is pulled towards 1, or all
factors of a pool could drift together. The pull is small: a kind that is three times as slow is
predicted within a few percent.

A replica that serves several models has one factor for all of them.

Must never: look at a clock, or keep more than `FIRST` numbers.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

FIRST: Final = 8  # answers
MOST: Final = 8.0  # no kind is slower than the pool's line by more; 1/MOST: nor faster
DOUBLING_S: Final = 300.0
# What one answer moves the factor by is the time since the one before; this at most.
STEP_LONGEST_S: Final = 10.0
CLEARLY: Final = 2.0 / 3.0
_RATE: Final = log(2.0) / DOUBLING_S
_LEAN: Final = 0.05 * _RATE  # of the factor's logarithm
_MOST_LOG: Final = log(MOST)
_CLEARLY_LOG: Final = log(CLEARLY)


class Speed:
    """The factor of one replica. Times are monotonic seconds."""

    __slots__ = ("_answers", "_at", "_log", "_ratios", "factor")

    def __init__(self) -> None:
        self.factor = 1.0  # 3.0: it takes three times what the pool's line says
        self._log = 0.0  # of the factor
        self._answers = 0  # up to FIRST
        self._ratios: list[float] = []  # logarithms: the first, later the clearly quicker in a row
        self._at = 0.0  # of the latest answer

    def shown(self, took_s: float, line_s: float, now: float) -> None:
        """A first content came, for which the pool's line had said `line_s`."""
        self._seen(log(max(took_s, 1e-9) / line_s), now)

    def cut(self, waited_s: float, line_s: float, now: float) -> None:
        """An attempt ended that had waited so long and shown nothing."""
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
        return ranked[(len(ranked) - 1) // 2]  # the lower one of two: rather no straggler

    def _set(self, log_factor: float) -> None:
        self._log = min(max(log_factor, -_MOST_LOG), _MOST_LOG)
        self.factor = exp(self._log)


class Speeds:
    """Of one replica: streams and whole answers apart, as prefill and decode are."""

    __slots__ = ("streams", "wholes")

    def __init__(self) -> None:
        self.streams = Speed()
        self.wholes = Speed()
