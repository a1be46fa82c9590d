"""Stores what was learned about the estimates of the time to first token of one kind of requests.

A kind is a priority class and a state (see `ttft_estimate.py`). An account is an API key, a
credential or a client address (see `intake/flow.py`). The feedback is the time to first token of a
request, compared with its prediction. A cell stores the scores of the feedback, and computes the
interval of the estimates from these scores. If all accounts shared one cell, an account with most
of the requests would decide the intervals of all accounts, and a burst of its requests would
replace all scores of the others. So:

- All accounts share one cell while no account gives more than half of the recent feedback.
- If an account gives more than half, this largest account gets a cell of its own, which begins as a
  copy of the shared cell. The own cell then learns only from the largest account, and the shared
  cell only from the other accounts.
- If no other account gives feedback for `ALONE_S` seconds, the largest account's cell becomes the
  shared cell.

The largest account is found by the majority vote of Boyer and Moore, which finds an account that
gives more than half of the feedback. The vote stores only one account and one counter.

A request in a queue may wait for minutes. So it is counted before its first token comes whether
its interval is missed. Otherwise all requests that arrive in these minutes would get an interval
that has become wrong. Each request is counted once, at the first of these times:

- It has waited longer than the upper bound of its interval.
- A part of the requests ahead of it has been served (`admission/wait_progress.py`), and the time
  for this part shows by how much the prediction is wrong.
- Its first token comes.

Must never: keep more than two cells, or read a clock.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from router.core.conformal import WINDOW, ConformalInterval

# The counter of the vote from which on the largest account has a cell of its own. So a burst of one
# account changes at most this many of the shared scores.
LEAD: Final = WINDOW // 16
# The maximum of the vote's counter. So another account becomes the largest after at most about this
# much feedback in a row.
_LEAD_MOST: Final = 2 * LEAD
ALONE_S: Final = 300.0
_NEVER: Final = float("-inf")


class Awaited:
    """An estimate whose actual time to first token may not be known yet."""

    __slots__ = ("account", "is_counted", "is_open")

    def __init__(self, account: str) -> None:
        self.account = account
        self.is_open = True  # True: the actual time is not known yet.
        # True: it was counted whether the interval is missed.
        self.is_counted = False


class Cell:
    """The interval that was learned from some requests, and their estimates that are pending."""

    __slots__ = ("due", "interval", "learned_at", "pending")

    def __init__(self) -> None:
        self.interval = ConformalInterval()
        # A heap of (time at which the upper bound passes, number, estimate). An estimate whose
        # actual time became known stays in the heap until its bound passes, or until more than half
        # of the entries are such estimates.
        self.due: list[tuple[float, int, Awaited]] = []
        # Number of estimates that were given and whose actual times are not known yet.
        self.pending = 0
        # Time of the last first token or progress, in monotonic seconds.
        self.learned_at = _NEVER

    def copy(self) -> Cell:
        """Return a cell with a copy of the interval and without pending estimates."""
        made = Cell()
        made.interval = self.interval.copy()
        made.learned_at = self.learned_at
        return made

    def await_time(self, estimate: Awaited, until: float, number: int) -> None:
        """Let `EstimateCells.look` count a miss if the actual time is not known at `until`.

        `until` is the upper bound of the estimate. `number` orders estimates with equal bounds.
        """
        due = self.due
        heappush(due, (until, number, estimate))
        if len(due) > 64 + 2 * self.pending:
            self.due = [entry for entry in due if entry[2].is_open]
            heapify(self.due)

    def learn(self, score: float, is_cut: bool, now: float) -> None:
        """Add a score to the interval; see `ConformalInterval.add`."""
        if not is_cut:
            self.learned_at = now
        self.interval.add(score, is_cut)


class EstimateCells:
    """The cells of one class and state: the shared cell, and that of the largest account."""

    __slots__ = ("_largest", "_largest_at", "_lead", "_others_at", "own", "shared", "waits")

    def __init__(self, waits: bool = False) -> None:
        """`waits` is True if requests of this state wait in the queue."""
        self.waits = waits
        self.shared = Cell()
        self.own: Cell | None = None  # The largest account's cell; `None`: it uses `shared`.
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
                self.count(cell, estimate, False, True)

    def count(self, cell: Cell, estimate: Awaited, is_below: bool, is_above: bool) -> None:
        """Count whether the interval of an estimate, which came from `cell`, is missed.

        `is_below`, `is_above`: see `ConformalInterval.judged`. Only the first call for an estimate
        has an effect.
        """
        if estimate.is_counted:
            return
        estimate.is_counted = True
        # If the account now has another cell, the estimate says nothing about that cell.
        if self.of(estimate.account) is cell:
            cell.interval.judged(is_below, is_above, cell.pending)

    def learn(self, account: str, score: float, is_cut: bool, now: float) -> None:
        """Count the feedback of an account and add its score; see `ConformalInterval.add`."""
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
        """Make another account the largest one."""
        own = self.own
        if own is not None:  # The new largest account gave most of the shared cell's feedback.
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
