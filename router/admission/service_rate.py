"""Measures how fast a queue is served, for Retry-After and to detect hopeless waits.

Only the time while a request waits counts, and only requests sent in that time. Requests sent
without a wait show how many arrived, not how many could be served. Both values are averaged with a
time constant of two minutes, for each class and for all classes together. A class that waits and is
not served, because more urgent classes use every place, has a rate near 0, not an unknown rate.

Must never: give a Retry-After above `MOST_S` or below a second, or call a wait hopeless while the
rate is unknown.
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final

from policies.queueing.ticket import CLASSES

# An engine's requests may begin and end at the same time, a minute or two apart: a shorter average
# would be 0 between two such times.
_AVERAGE_S: Final = 120.0
_FORGET_S: Final = 120.0  # seconds without waiting requests, after which an old rate is dropped
MOST_S: Final = 600
UNKNOWN_S: Final = 5
_YOUNG_S: Final = 10.0  # seconds of waiting: before that a rate is not known, ...
_FEW: Final = 5.0  # ... unless this number was served
_MANY: Final = 20.0  # minimum number of served requests for a wait to be called hopeless
_ALL: Final = CLASSES


class Rate:
    """Requests served while others waited, and the time of waiting, averaged until `mark`."""

    __slots__ = ("mark", "served", "waited_s")

    def __init__(self) -> None:
        self.served = 0.0
        self.waited_s = 0.0
        self.mark = -_FORGET_S

    def begin(self, now: float) -> None:
        if now - self.mark >= _FORGET_S:
            self.served = self.waited_s = 0.0
        self.mark = now

    def at(self, now: float) -> tuple[float, float]:
        """Requests served and seconds of waiting, averaged until now; a request waits."""
        kept = exp(-max(0.0, now - self.mark) / _AVERAGE_S)
        return self.served * kept, self.waited_s * kept + _AVERAGE_S * (1.0 - kept)

    def count(self, now: float) -> None:
        """Count one served request."""
        served, self.waited_s = self.at(now)
        self.served = served + 1.0
        self.mark = now


class ServiceRate:
    """Rates of one queue. Urgencies count from 0; all classes together are one more."""

    __slots__ = ("_rates",)

    def __init__(self) -> None:
        self._rates = [Rate() for _ in range(CLASSES + 1)]

    def began(self, urgency: int, now: float, *, is_first: bool) -> None:
        """A request begins to wait as the first of its class. `is_first`: as the first of any
        class.
        """
        self._rates[urgency].begin(now)
        if is_first:
            self._rates[_ALL].begin(now)

    def served(self, urgency: int, now: float, *, waited: bool) -> None:
        """A request is sent while others wait. `waited`: its class has or had a waiting request."""
        if waited:
            self._rates[urgency].count(now)
        self._rates[_ALL].count(now)

    def retry_after_s(self, urgency: int | None, ahead: int, now: float) -> int:
        """Whole seconds until `ahead` requests of a waiting class are served; None: of any
        class.
        """
        served, waited_s = self._rates[_ALL if urgency is None else urgency].at(now)
        if waited_s < _YOUNG_S and served < _FEW:
            return UNKNOWN_S
        return _whole_s(ahead * waited_s / max(served, 1.0))

    def least_wait_s(self, ahead: int, now: float) -> float:
        """The time in which `ahead` requests are served if nothing else is; 0: unknown.

        It is a lower bound: classes that take places now may take none soon.
        """
        served, waited_s = self._rates[_ALL].at(now)
        if waited_s < _YOUNG_S or served < _MANY:
            return 0.0
        return ahead * waited_s / served


def _whole_s(seconds: float) -> int:
    return max(1, min(MOST_S, ceil(min(seconds, MOST_S))))
