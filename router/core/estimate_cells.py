"""What was learned about the estimates of one class and state, for all accounts and the largest.

With one window for all feedback, an account with most of the requests would decide the intervals of
all accounts, and a burst would replace all scores of the others. So:

- All accounts share one cell while none of them gives most of the recent feedback.
- Otherwise that account, the largest, has a cell of its own, which begins as a copy. It learns from
  the account alone, and the shared cell from all others.
- If no other account gives feedback for `ALONE_S`, the largest account's cell becomes the shared
  one.

The largest account is found by the majority vote of Boyer and Moore: an account that gives more
than half of the feedback wins, and the vote keeps one name and one number.

A request in a queue may wait for minutes. If it has waited for longer than its interval, that is
counted at once, and not when its first token comes. Otherwise an interval that has become too short
would be given to all requests that arrive in these minutes.

Must never: keep more than two cells, or read a clock.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from router.core.conformal import WINDOW, ConformalInterval

# The lead of the largest account, in feedback, from which on it has a cell of its own. A burst
# changes at most this many of the shared scores.
LEAD: Final = WINDOW // 16
_LEAD_MOST: Final = 2 * LEAD  # An account becomes the largest after so much feedback in a row.
ALONE_S: Final = 300.0
_NEVER: Final = float("-inf")


class Awaited:
    """An estimate whose time is not known yet."""

    __slots__ = ("account", "is_missed", "is_open")

    def __init__(self, account: str) -> None:
        self.account = account
        self.is_open = True  # Whether no first token was noted yet.
        self.is_missed = False  # The upper bound has passed, and the miss was counted.


class Cell:
    """What was learned from some requests of one class and state."""

    __slots__ = ("due", "interval", "learned_at", "pending")

    def __init__(self) -> None:
        self.interval = ConformalInterval()
        # Heap of (time at which the upper bound passes, number, estimate). Estimates whose times
        # became known stay until their bounds pass, or until they are more than half of all.
        self.due: list[tuple[float, int, Awaited]] = []
        self.pending = 0  # Estimates that were given and whose times are not known yet.
        self.learned_at = _NEVER  # Time of the last first token, in monotonic seconds.

    def copy(self) -> Cell:
        """Return a cell that has learned the same and has no pending estimates."""
        made = Cell()
        made.interval = self.interval.copy()
        made.learned_at = self.learned_at
        return made

    def await_time(self, estimate: Awaited, until: float, number: int) -> None:
        """Count a miss if the time of an estimate is not known at `until`, its upper bound.

        `number` decides among equal times.
        """
        due = self.due
        heappush(due, (until, number, estimate))
        if len(due) > 64 + 2 * self.pending:
            self.due = [entry for entry in due if entry[2].is_open]
            heapify(self.due)

    def learn(self, score: float, is_cut: bool, now: float) -> None:
        """See `ConformalInterval.add`."""
        if not is_cut:
            self.learned_at = now
        self.interval.add(score, is_cut)


class EstimateCells:
    """The cells of one class and state."""

    __slots__ = ("_largest", "_largest_at", "_lead", "_others_at", "own", "shared", "waits")

    def __init__(self, waits: bool = False) -> None:
        """`waits`: requests of the state wait in the queue."""
        self.waits = waits
        self.shared = Cell()
        self.own: Cell | None = None  # The cell of the largest account; `None`: it shares.
        self._largest: str | None = None
        self._lead = 0
        # Times of the last feedback of the largest account, and of another account.
        self._largest_at = self._others_at = _NEVER

    def of(self, account: str) -> Cell:
        """Return the cell for the estimates of an account."""
        own = self.own
        return own if own is not None and account == self._largest else self.shared

    def look(self, cell: Cell, now: float) -> None:
        """Count the misses of a cell's estimates whose upper bounds have passed."""
        due = cell.due
        while due and due[0][0] <= now:
            estimate = heappop(due)[2]
            if estimate.is_open:
                estimate.is_missed = True
                if self.of(estimate.account) is cell:  # Otherwise another cell is in force.
                    cell.interval.judged(False, True, cell.pending)

    def learn(self, account: str, score: float, is_cut: bool, now: float) -> None:
        """Take the score of a request. See `ConformalInterval.add`."""
        if account == self._largest:
            self._lead = min(_LEAD_MOST, self._lead + 1)
        elif self._lead > 0:
            if self._lead >= LEAD and self.own is None:
                self.own = self.shared.copy()
            self._lead -= 1
            self._others_at = now
            self.shared.learn(score, is_cut, now)
            return
        else:
            self._begin_largest(account)
        self._largest_at = now
        self._choose_cell(now)
        self.of(account).learn(score, is_cut, now)

    def _begin_largest(self, account: str) -> None:
        """Another account is the largest from now on."""
        own = self.own
        if own is not None:  # The account has given most of the feedback of the shared cell.
            self.own = self.shared
            self.shared = own
        self._largest = account
        self._lead = 1
        self._others_at = max(self._others_at, self._largest_at)

    def _choose_cell(self, now: float) -> None:
        """Decide whether the largest account has a cell of its own."""
        own = self.own
        is_alone = now >= self._others_at + ALONE_S
        if is_alone and own is not None:
            self.shared = own
            self.own = None
        elif not is_alone and own is None and self._lead >= LEAD:
            self.own = self.shared.copy()
