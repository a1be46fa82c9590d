"""Estimates the time to first token of each stream at its arrival, with a 90 % interval.

The prediction is computed from the learned speeds of the engines and, if the request waits, from
the state of the queue. Predictions have errors, which are learned for each priority class and each
state of a request: a wait in a queue is much less certain than a prefill. `ConformalInterval` gives
the bounds and the median of the ratio of the actual to the predicted time. The median corrects the
prediction.

- No estimate is given before enough first tokens of the same class and state were compared with
  their predictions.
- The errors of an account with most of the requests are learned separately, so that this account
  does not decide the intervals of other accounts (`estimate_cells.py`).
- A request that waits for minutes is learned before its first content, from the progress of the
  queue (`progressed`), and a last time at its first content.
- The actual time is that of the request's first content, whichever attempt it came from. A request
  that ended without content is censored (`conformal.py`).
- Answers that are not streamed have no first token, so they get no estimates.

Memory is limited. A request costs two insertions into short sorted lists, and up to three more if
it waits behind many others; a token costs nothing.

Must never: do I/O, read a clock, or hold a reference to a request.
"""

from __future__ import annotations

from math import ceil, exp, log
from typing import Final

from router.core.errors import Reason, RouterError
from router.core.estimate_cells import Awaited, EstimateCells
from router.core.urgency import CLASSES

# The states of a request at its arrival.
AT_ONCE: Final = 0  # The request is sent at once.
# The request is sent at once to an engine in which it may wait for a slot or for KV cache.
ENGINE_FULL: Final = 1
SOON: Final = 2  # The request waits in the router's queue, behind few requests.
LATER: Final = 3  # The request waits in the router's queue, behind many requests.
STATES: Final = ("at_once", "engine_full", "soon", "later")
FEW: Final = 8  # With at least this many requests ahead, the state is LATER.

# A request is refused only if a first token or the progress of a waiting request was learned in
# the last `FRESH_S` seconds. Otherwise an outdated estimate could refuse all requests, and nothing
# would correct the estimate.
FRESH_S: Final = 30.0
RETRY_MOST_S: Final = 600
_SHORTEST_S: Final = 1e-4


class TtftEstimate(Awaited):
    """The estimate of one request. Times are in seconds since `made_at`."""

    __slots__ = (
        "_cell",
        "_cells",
        "estimate_s",
        "high_s",
        "idle_s",
        "is_given",
        "is_judged",
        "is_kept",
        "low_s",
        "made_at",
        "predicted_s",
    )

    def __init__(
        self,
        cells: EstimateCells,
        account: str,
        predicted_s: float,
        idle_s: float,
        now: float,
        number: int,
    ) -> None:
        super().__init__(account)
        cell = cells.of(account)
        if cells.waits:
            cells.look(cell, now)
        self.made_at = now  # Time of the estimate in monotonic seconds.
        self.predicted_s = predicted_s  # The prediction before its correction by the median.
        self.idle_s = idle_s  # The prediction for an idle replica.
        # False: too few first tokens were learned for an estimate. The request's own time is
        # learned in any case.
        self.is_given = cell.interval.is_known
        self.estimate_s = self.low_s = self.high_s = 0.0
        # `is_judged`: it is known whether the actual time was within the interval. `is_kept`: it
        # was within the interval.
        self.is_judged = False
        self.is_kept = False
        self._cells = cells
        self._cell = cell  # The cell from which the interval comes.
        if self.is_given:
            cell.pending += 1
            interval = cell.interval
            self.low_s = predicted_s * exp(interval.low())
            self.high_s = predicted_s * exp(interval.high())
            middle_s = predicted_s * exp(interval.middle())
            self.estimate_s = max(self.low_s, min(self.high_s, middle_s))
            if cells.waits:
                cell.await_time(self, now + self.high_s, number)

    def shown(self, now: float) -> None:
        """Learn from the first content of the request."""
        if self._close():
            self._learn(now, False)

    def progressed(self, score: float, now: float) -> None:
        """Learn from a request that still waits. `score`: the expected error of the prediction, as
        log(actual / predicted), from the progress of the queue until now."""
        if not self.is_open:
            return
        if self.is_given:
            time_s = self.predicted_s * exp(score)
            self._cells.count(self._cell, self, time_s < self.low_s, time_s > self.high_s)
        self._cells.learn(self.account, score, False, now)

    def ended(self, now: float) -> None:
        """Note the end of the request. If it had no content, it is learned as censored."""
        if self._close():
            self._learn(now, True)

    def void(self) -> None:
        """Learn nothing from this request, because its time was not caused by engines or queue."""
        self._close()

    def _close(self) -> bool:
        """Mark the actual time as known. Returns whether it was unknown before."""
        was_open = self.is_open
        self.is_open = False
        if was_open and self.is_given:
            self._cell.pending -= 1
        return was_open

    def _learn(self, now: float, is_cut: bool) -> None:
        took_s = now - self.made_at
        cells, account = self._cells, self.account
        if self.is_given and (not is_cut or took_s > self.high_s):
            is_below, is_above = took_s < self.low_s, took_s > self.high_s
            self.is_judged = True
            self.is_kept = not (is_below or is_above)
            cells.count(self._cell, self, is_below, is_above)
        cells.learn(account, log(max(took_s, _SHORTEST_S) / self.predicted_s), is_cut, now)

    def is_late(self, due: float, now: float) -> bool:
        """Whether the lower bound of the estimate is after `due`, in monotonic seconds."""
        return (
            self.is_given
            and self.made_at + self.low_s > due
            and now - self._cell.learned_at <= FRESH_S
        )

    def late_error(self, due: float) -> RouterError:
        """Return the error for a request that is refused because of `is_late`.

        Retry-After is the time after which the estimate would meet the same time limit if no other
        request arrived: the wait becomes one second shorter in each second. The error has no
        Retry-After if even an idle replica could not meet the limit.
        """
        limit_s = max(0.0, due - self.made_at)
        correction = self.estimate_s / self.predicted_s
        retry_after_s: int | None = None
        why = ", also at an idle replica"
        if self.idle_s * correction <= limit_s:
            why = ""
            least_s = ceil(min(self.predicted_s - limit_s / correction, float(RETRY_MOST_S)))
            retry_after_s = max(1, least_s)
        return RouterError(
            Reason.TTFT_UNREACHABLE,
            f"the first token is expected in {self.estimate_s:.3g} s, and not before "
            f"{self.low_s:.3g} s, but is due in {limit_s:.3g} s{why}",
            retry_after_s=retry_after_s,
        )


class TtftEstimates:
    """The learned errors of all classes and states of one router."""

    __slots__ = ("_count", "cells")

    def __init__(self) -> None:
        self._count = 0
        self.cells = [EstimateCells(state >= SOON) for _ in CLASSES for state in range(len(STATES))]

    def of(
        self,
        urgency: int,
        state: int,
        account: str,
        predicted_s: float,
        idle_s: float,
        now: float,
    ) -> TtftEstimate:
        """Return the estimate of a request. `urgency` is its class, 0 to 4.

        `predicted_s` is the predicted time to first token, in seconds from now. `idle_s` is the
        prediction for an idle replica, without any wait.
        """
        cells = self.cells[urgency * len(STATES) + state]
        self._count += 1
        predicted_s = max(predicted_s, _SHORTEST_S)
        return TtftEstimate(cells, account, predicted_s, idle_s, now, self._count)


def header_value(estimate: TtftEstimate, arrived: float) -> bytes:
    """Return the value of the response header: milliseconds since the request's arrival."""
    before_s = estimate.made_at - arrived
    return b"%d; low=%d; high=%d" % (
        int(1000.0 * (before_s + estimate.estimate_s) + 0.5),
        int(1000.0 * (before_s + estimate.low_s) + 0.5),
        int(1000.0 * (before_s + estimate.high_s) + 0.5),
    )
