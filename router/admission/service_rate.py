"""Measures how fast a queue is served, for Retry-After, hopeless waits and `turn_model.py`.

Only the time while a request waits counts, and only requests sent in that time. Requests sent
without a wait show how many arrived, not how many could be served. The waiting time and the number
of sent requests are averaged with a time constant of two minutes, for each class and for all
classes together. If a class waits and is not served, because more urgent classes use all capacity,
its rate is near 0, not unknown.

The cost that is served per second is measured from the same requests. If the mean cost came from
other requests than the rate, the two would not vary together: while expensive requests are served,
fewer are served per second.

Must never: return a Retry-After above `MOST_S` or below a second, or treat a wait as hopeless while
the rate is unknown.
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final

from policies.queueing.ticket import CLASSES

# Time constant of the averages in seconds. All requests of an engine may begin and end at the same
# times, with a minute or two between them. A shorter average could be 0 between two such times.
_AVERAGE_S: Final = 120.0
_FORGET_S: Final = 120.0  # Seconds without waiting requests, after which an old rate is dropped.
MOST_S: Final = 600
UNKNOWN_S: Final = 5
# A service rate is known after `_YOUNG_S` seconds in which requests waited, or after `_FEW` served
# requests.
_YOUNG_S: Final = 10.0
_FEW: Final = 5.0
_MANY: Final = 20.0  # Minimum number of served requests for a wait to be treated as hopeless.
_ALL: Final = CLASSES


class Rate:
    """The number of requests served while others waited, their mean cost, and the time in which
    requests waited.

    All are moving averages, last updated at the time `mark`.
    """

    __slots__ = ("cost", "mark", "served", "waited_s")

    def __init__(self) -> None:
        self.served = 0.0
        self.cost = 0.0  # The mean cost of the served requests, averaged in the same way.
        self.waited_s = 0.0
        self.mark = -_FORGET_S

    def begin(self, now: float) -> None:
        if now - self.mark >= _FORGET_S:
            self.served = self.waited_s = 0.0
        self.mark = now

    def at(self, now: float) -> tuple[float, float]:
        """Return the averages of served requests and of seconds with waiting requests.

        Call this only while a request waits.
        """
        kept = exp(-max(0.0, now - self.mark) / _AVERAGE_S)
        return self.served * kept, self.waited_s * kept + _AVERAGE_S * (1.0 - kept)

    def count(self, now: float, cost: float) -> None:
        """Count one served request of this cost."""
        served, self.waited_s = self.at(now)
        served += 1.0
        self.served = served
        self.cost = self.cost + (cost - self.cost) / served
        self.mark = now


class ServiceRate:
    """The service rates of one queue: one for each class, and one for all classes together."""

    __slots__ = ("_rates",)

    def __init__(self) -> None:
        self._rates = [Rate() for _ in range(CLASSES + 1)]

    def began(self, urgency: int, now: float, *, is_first: bool) -> None:
        """Note that the first request of a class begins to wait.

        `is_first`: no request of another class waits.
        """
        self._rates[urgency].begin(now)
        if is_first:
            self._rates[_ALL].begin(now)

    def served(self, urgency: int, now: float, cost: float, *, waited: bool) -> None:
        """Count a request that is sent while others wait. `cost`: as in `Stride`.

        `waited`: whether the request itself waited, or another request of its class waits.
        """
        if waited:
            self._rates[urgency].count(now, cost)
        self._rates[_ALL].count(now, cost)

    def retry_after_s(self, urgency: int | None, ahead: int, now: float) -> int:
        """Return the expected whole seconds until `ahead` requests of a class are served.

        `urgency`: a class with waiting requests; None: all classes together.
        """
        expected_s = self.expected_s(urgency, ahead, now)
        return UNKNOWN_S if expected_s < 0.0 else _whole_s(expected_s)

    def expected_s(self, urgency: int | None, ahead: int, now: float) -> float:
        """Return the expected seconds until `ahead` requests are served; below 0: unknown.

        `urgency`: see `retry_after_s`.
        """
        served, waited_s = self._rates[_ALL if urgency is None else urgency].at(now)
        if waited_s < _YOUNG_S and served < _FEW:
            return -1.0
        return ahead * waited_s / max(served, 1.0)

    def cost_per_s(self, now: float) -> float:
        """Return the cost that is served per second, of all classes; 0: unknown."""
        each_s = self.expected_s(None, 1, now)
        return self._rates[_ALL].cost / each_s if each_s > 0.0 else 0.0

    def least_wait_s(self, ahead: int, now: float) -> float:
        """Return a lower bound of the seconds until `ahead` requests are served; 0: unknown.

        The bound assumes that no other request is served in that time.
        """
        served, waited_s = self._rates[_ALL].at(now)
        if waited_s < _YOUNG_S or served < _MANY:
            return 0.0
        return ahead * waited_s / served


def _whole_s(seconds: float) -> int:
    return max(1, min(MOST_S, ceil(min(seconds, MOST_S))))
