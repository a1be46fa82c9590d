"""The AIMD concurrency limit of a replica that reports no metrics, learned from its answers.

The limit applies to requests whose first content has not arrived yet. The limit changes by additive
increase and multiplicative decrease (AIMD), as in TCP and in Netflix's concurrency limits:

- While the limit is used up, each answer in usual time raises it by 1 / limit, which adds one to
  the limit per round. (A round is as many answers as the limit.) Before the first decrease each
  such answer raises the limit by one (slow start).
- A late or failed answer lowers the limit by a tenth, at most once per round. An answer is late if
  it takes more than `_SLOW` times as long as the best recent answer, and more than `_LATE_S`
  seconds longer. An answer fails if the replica refuses the request or times out.
- The time of the best answer is forgotten after one to two windows of `_WINDOW_S` seconds, because
  that answer may have been unusually easy.

Must never: fall below `LEAST`, so that dispatch does not stop for lack of metrics.
"""

from __future__ import annotations

from math import inf
from typing import Final

LEAST: Final = 4
FIRST: Final = 64.0
MOST: Final = 1024.0
_SLOW: Final = 3.0  # A late answer takes more than this many times the shortest recent time.
# A late answer also takes this many seconds longer, because small differences show no overload.
_LATE_S: Final = 0.5
_CUT: Final = 0.9
_WINDOW_S: Final = 60.0


class AimdLimit:
    """The AIMD concurrency limit of one replica."""

    __slots__ = ("_best_s", "_cut_at", "_last_best_s", "_window_at", "limit")

    def __init__(self) -> None:
        self.limit = FIRST
        self._best_s = inf  # The shortest time per unit of work in this window, in seconds.
        # The shortest time per unit of work in the previous window, in seconds.
        self._last_best_s = inf
        self._window_at = -inf
        self._cut_at = -inf

    def allowed(self) -> int:
        return int(self.limit)

    def answered(self, sent_at: float, now: float, work: float, others: int) -> None:
        """Learn from a complete answer. `others`: the number of other requests at the replica whose
        first content has not arrived. `work`: the size of the request in any unit, such as
        tokens."""
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
        """Lower the limit, because a request was refused, timed out or was late. A request that was
        sent before the last decrease does not lower the limit again, because it belongs to the same
        round."""
        if sent_at > self._cut_at:
            self._cut_at = now
            self.limit = max(float(LEAST), self.limit * _CUT)
