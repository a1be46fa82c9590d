"""Checks that the body of a request arrives fast enough.

In each window of `timeouts.body_rate_over_s` seconds, a minimum number of bytes must arrive. So a
client cannot hold memory for hours by sending byte after byte.
"""

from __future__ import annotations

from router.config.model import Timeouts


class BodyRate:
    """The rate of one body. The first window begins at once."""

    __slots__ = ("_bytes", "_ends", "_least_bytes", "_window_s")

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._window_s = timeouts.body_rate_over_s
        self._least_bytes = timeouts.body_rate * timeouts.body_rate_over_s
        self.begin(now)

    def begin(self, now: float) -> None:
        """Begins a new window, because the client did not cause the time that has passed."""
        self._ends = now + self._window_s
        self._bytes = 0

    def is_too_low(self, size: int, now: float) -> bool:
        """Counts bytes that have arrived. Returns whether a window has ended with too few."""
        self._bytes += size
        if now < self._ends:
            return False
        is_too_low = self._bytes < self._least_bytes
        self.begin(now)
        return is_too_low
