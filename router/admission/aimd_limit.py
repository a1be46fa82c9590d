"""How many requests that show nothing a replica bears that tells nothing: learned from its answers.

Additive increase, multiplicative decrease (AIMD; as in TCP, and in Netflix's concurrency limits):
answers that come at their usual pace while the limit is used up raise it by one per round, and
until the first that does not by one each (slow start). One that took several times as long as the
best lately, and noticeably longer, or failed for want of room, lowers it by a tenth, at most once
per round. The best is forgotten after a while, since it may have been of shorter work.

Must never: fall below `LEAST`, so that dispatch never stops for lack of metrics.
"""

from __future__ import annotations

from math import inf
from typing import Final

LEAST: Final = 4
FIRST: Final = 64.0
MOST: Final = 1024.0
_SLOW: Final = 3.0  # times the best ...
_LATE_S: Final = 0.5  # ... and so much more: nobody is overloaded who answers in a moment
_CUT: Final = 0.9
_WINDOW_S: Final = 60.0


class AimdLimit:
    """Of one replica."""

    __slots__ = ("_best_s", "_cut_at", "_last_best_s", "_window_at", "limit")

    def __init__(self) -> None:
        self.limit = FIRST
        self._best_s = inf  # per unit of work, in this window ...
        self._last_best_s = inf  # ... and the one before
        self._window_at = -inf
        self._cut_at = -inf

    def allowed(self) -> int:
        return int(self.limit)

    def answered(self, sent_at: float, now: float, work: float, others: int) -> None:
        """One that was sent at `sent_at` has come, while so many `others` have shown nothing yet;
        `work`: in any unit, above 0, such as tokens."""
        if now - self._window_at > _WINDOW_S:
            self._window_at = now
            self._last_best_s, self._best_s = self._best_s, inf
        work = max(work, 1.0)
        took_s = max(now - sent_at, 1e-6)
        self._best_s = min(self._best_s, took_s / work)
        usual_s = work * min(self._best_s, self._last_best_s)
        if took_s > _SLOW * usual_s and took_s > usual_s + _LATE_S:
            self.failed(sent_at, now)
        elif others + 1 >= int(self.limit):
            step = 1.0 if self._cut_at == -inf else 1.0 / self.limit
            self.limit = min(MOST, self.limit + step)

    def failed(self, sent_at: float, now: float) -> None:
        """It was refused or timed out, or came far too late. Those that were sent before the last
        cut say nothing new."""
        if sent_at > self._cut_at:
            self._cut_at = now
            self.limit = max(float(LEAST), self.limit * _CUT)
