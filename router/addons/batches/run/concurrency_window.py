"""Limits how many batch lines of one owner and model may be in progress at once.

A line of a batch file is one request to the router. The limit (window) depends only on the router's
responses. Each success increases the window: fast until the first refusal (slow start: Jacobson
1988), later by one each time that as many lines as the window have succeeded. A refusal (429, 503)
halves the window, and no line is sent for the time that the refusal states (additive increase,
multiplicative decrease: Chiu and Jain 1989). If the refused line was sent before the window was
last halved, the refusal only prolongs this pause. All times are monotonic seconds.

`LineScheduler`: chooses the batch whose next line is sent: owners take turns, and so do the batches
of one owner.

So ten batches of one owner together get as many turns as the only batch of another owner. If a
batch cannot send now, it is skipped and keeps its turn. For example, its model has no capacity, or
its lines wait for a retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

FIRST = 4  # the window before the first response
LEAST = 1.0
PAUSE_S = 1.0  # the pause in seconds after a refusal without a Retry-After header
PAUSE_MAX_S = 60.0  # maximum pause in seconds; one request per minute costs little


class ConcurrencyWindow:
    """The window for the lines of one owner and model. `under_way`: the lines in progress."""

    __slots__ = ("_cut_at", "_most", "_slow", "resumes_at", "under_way", "window")

    def __init__(self, most: int, first: int = FIRST) -> None:
        self._most = float(most)
        self.window = float(min(first, most))
        self.under_way = 0
        self.resumes_at = 0.0  # no line is sent before this time
        self._slow = False  # whether a refusal came, after which the window grows slowly
        self._cut_at = -1.0

    def admits(self, now: float) -> bool:
        """Return whether one more line may be sent now."""
        return now >= self.resumes_at and self.under_way < int(self.window)

    def left(self) -> None:
        self.under_way += 1

    def gone(self) -> None:
        """Called when a line has ended with neither a success nor a refusal."""
        self.under_way -= 1

    def answered(self) -> None:
        """Called when a line has succeeded. The window grows if at least half of it is in use."""
        if self.under_way >= int(self.window) / 2:
            self.window = min(self._most, self.window + (1.0 / self.window if self._slow else 1.0))
        self.under_way -= 1

    def refused(self, sent_at: float, now: float, retry_after_s: float | None) -> float:
        """Called when the router responded with 429 or 503 to a line that was sent at `sent_at`.

        Returns the time at which to send the line again.
        """
        self.under_way -= 1
        self._slow = True
        if sent_at > self._cut_at:
            self._cut_at = now
            # If fewer lines than the window were in progress, their number is halved: the router
            # has never accepted as many lines as the window.
            self.window = max(LEAST, min(self.window, self.under_way + 1.0) / 2)
        pause = PAUSE_S if retry_after_s is None else retry_after_s
        self.resumes_at = max(self.resumes_at, now + min(max(pause, 0.0), PAUSE_MAX_S))
        return self.resumes_at


T = TypeVar("T")


class LineScheduler(Generic[T]):
    """The queue of owners, and a queue of batches for each owner."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: deque[tuple[str, deque[T]]] = deque()

    def add(self, owner: str, member: T) -> None:
        for name, members in self._owners:
            if name == owner:
                members.append(member)
                return
        self._owners.append((owner, deque([member])))

    def discard(self, owner: str, member: T) -> None:
        for place in self._owners:
            if place[0] == owner and member in place[1]:
                place[1].remove(member)
                if not place[1]:
                    self._owners.remove(place)
                return

    def next(self, is_ready: Callable[[T], bool]) -> T | None:
        """Return the next batch for which `is_ready` is true; None if no batch is ready.

        The batch goes to the end of its owner's queue, and the owner to the end of the queue of
        owners.
        """
        for at, place in enumerate(self._owners):
            members = place[1]
            for index, member in enumerate(members):
                if is_ready(member):
                    del members[index]
                    members.append(member)
                    del self._owners[at]
                    self._owners.append(place)
                    return member
        return None
