"""How fast a class leaves the queue by being served: what Retry-After is reckoned from.

Dispatches are counted in parts of a window, and a rate is over the time they span; a class that is
not served at all has none.

Must never: promise more than `MOST_S` or less than a second.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from policies.queueing.ticket import CLASSES

_PART_S: Final = 5.0
_PARTS: Final = 6
MOST_S: Final = 600
_UNKNOWN_S: Final = 5


class Drain:
    """Rates of one queue."""

    __slots__ = ("_counts", "_numbers")

    def __init__(self) -> None:
        self._counts = [[0] * _PARTS for _ in range(CLASSES)]
        self._numbers = [[-1] * _PARTS for _ in range(CLASSES)]  # which part of time each counts

    def served(self, urgency: int, now: float) -> None:
        number = int(now / _PART_S)
        slot = number % _PARTS
        numbers, counts = self._numbers[urgency], self._counts[urgency]
        if numbers[slot] != number:
            numbers[slot] = number
            counts[slot] = 0
        counts[slot] += 1

    def rate(self, urgency: int, now: float) -> float:
        """Requests a second, lately; 0: none."""
        number = int(now / _PART_S)
        numbers, counts = self._numbers[urgency], self._counts[urgency]
        count = 0
        first = number
        for slot in range(_PARTS):
            if number - _PARTS < numbers[slot] <= number:
                count += counts[slot]
                first = min(first, numbers[slot])
        return count / max(now - first * _PART_S, 1.0)

    def retry_after_s(self, urgency: int, ahead: int, now: float) -> int:
        """When so many of the class will have been served."""
        rate = self.rate(urgency, now)
        if rate <= 0.0:
            return _UNKNOWN_S
        return max(1, min(MOST_S, ceil(ahead / rate)))
