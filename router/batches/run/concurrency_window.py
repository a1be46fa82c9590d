"""The number of lines of one owner and model that may be in progress at once.

Pure; monotonic seconds.

The router's answers are the only signal. Each successful answer increases the number of lines: fast
until the first refusal, and by one per round afterwards. A refusal (429, 503) halves the number and
stops the sending for the time that the refusal states (additive increase, multiplicative decrease:
Chiu and Jain 1989; slow start: Jacobson 1988). A refusal of a request that was sent before the last
decrease contains no new information, so it only prolongs the stop.
"""

from __future__ import annotations

FIRST = 4  # lines in progress at once before the first answer
LEAST = 1.0
PAUSE_S = 1.0  # pause in seconds after a refusal without Retry-After
PAUSE_MAX_S = 60.0  # maximum pause: one request per minute costs little


class ConcurrencyWindow:
    """The window of one owner's lines for one model."""

    __slots__ = ("_cut_at", "_most", "_slow", "resumes_at", "under_way", "window")

    def __init__(self, most: int, first: int = FIRST) -> None:
        self._most = float(most)
        self.window = float(min(first, most))
        self.under_way = 0
        self.resumes_at = 0.0  # no line is sent before this time
        self._slow = False  # a refusal was seen: grow by one per round
        self._cut_at = -1.0

    def admits(self, now: float) -> bool:
        """Returns whether one more line may be sent now."""
        return now >= self.resumes_at and self.under_way < int(self.window)

    def left(self) -> None:
        self.under_way += 1

    def gone(self) -> None:
        """A line has ended without information about capacity."""
        self.under_way -= 1

    def answered(self) -> None:
        """A line succeeded. The window grows if at least half of it is in use."""
        if self.under_way >= int(self.window) / 2:
            self.window = min(self._most, self.window + (1.0 / self.window if self._slow else 1.0))
        self.under_way -= 1

    def refused(self, sent_at: float, now: float, retry_after_s: float | None) -> float:
        """The router answered 429 or 503 to a line sent at `sent_at`. Returns when to send
        the line again.
        """
        self.under_way -= 1
        self._slow = True
        if sent_at > self._cut_at:
            self._cut_at = now
            # Halve the number of lines in progress, not the window: an unfilled window was never
            # confirmed.
            self.window = max(LEAST, min(self.window, self.under_way + 1.0) / 2)
        pause = PAUSE_S if retry_after_s is None else retry_after_s
        self.resumes_at = max(self.resumes_at, now + min(max(pause, 0.0), PAUSE_MAX_S))
        return self.resumes_at
