"""Counts the concurrent requests of each party, over the whole fleet."""

from __future__ import annotations


class Crowd:
    """The running requests of one party."""

    __slots__ = ("now", "peak", "peak_at", "seconds")

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.peak_at = 0.0
        self.seconds = 0.0  # sum of the running times of all requests of the party

    def comes(self, now: float) -> None:
        self.now += 1
        if self.now > self.peak:
            self.peak, self.peak_at = self.now, now

    def goes(self, stayed_s: float) -> None:
        self.now -= 1
        self.seconds += stayed_s
