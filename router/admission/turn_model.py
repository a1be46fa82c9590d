"""Predicts when waiting requests are served, by a fluid model of the turns of the classes.

The wait of a request depends on requests that arrive after it: those of more urgent classes
overtake it. It also depends on the ages of the waiting requests: with age, the weight of a class
rises, and starved classes get every second place. So the recent service rate of a class does not
predict a wait of minutes. The model computes the service of all classes in the coming hour, with
the rules of `choice.py` and `stride.py`:

- Requests of each class arrive at the rate of the last minutes.
- The queue serves as many tokens per second as in the last minutes (`service_rate.py`).
- Class critical is served first. The rest is shared by weight and age. But the classes whose oldest
  request is starved share at least half of the rest equally. What they get in this way counts for
  their shares by weight, as in `Choice`.
- Within a class, requests are served in the order of arrival.

The result is one table: for each class, the number of requests that are served until some points in
time. A class whose last waiting request is served during a step counts as served at the end of the
step, so a wait may be predicted up to a seventh too long. The table is expensive to compute, so it
is used for `FRESH_S` seconds, or until the queue of a class has become longer by half. A request
behind more requests than were in the state waits longer in proportion. Without turns by weight, no
wait is predicted.

Must never: read a clock, or change the queue.
"""

from __future__ import annotations

from math import exp
from typing import Final

from policies.queueing.ticket import CLASSES, INFINITY
from router.admission.rules import WEIGHTED, Rules
from router.admission.waiting.stride import Stride
from router.core.urgency import CRITICAL, HIGH

FRESH_S: Final = 0.25
# Time constant of the averages of the arrival rates, in seconds.
AVERAGE_S: Final = 120.0
UNKNOWN_S: Final = -1.0
# The steps of the model: each is longer than the one before. Together they are 77 minutes long.
_STEPS: Final = 60
_FIRST_S: Final = 0.25
_GROWTH: Final = 1.14
# The ends of the steps, in seconds after the time of the state.
_ENDS: Final = [
    _FIRST_S * (_GROWTH**index - 1.0) / (_GROWTH - 1.0) for index in range(1, _STEPS + 1)
]
_LITTLE: Final = 1e-9
_LONGEST_S: Final = 1e6  # The longest predicted wait: the class gets nothing in the last step.
_HALVINGS: Final = 48
_EXACT: Final = 1e-4  # The bisection ends at this relative error.


class ArrivalRates:
    """The arrival rates of all classes, as moving averages over `AVERAGE_S` seconds."""

    __slots__ = ("_at", "_counts", "_requests", "_seconds")

    def __init__(self) -> None:
        self._at = -INFINITY
        self._counts = [0] * CLASSES
        self._requests = [0.0] * CLASSES
        self._seconds = 0.0

    def count(self, arrived: list[int], now: float) -> None:
        """Add the arrivals since the last call. `arrived`: by class, the requests since the start
        of the router."""
        passed_s = now - self._at
        if passed_s <= 0.0:
            return
        if passed_s < INFINITY:
            kept = exp(-passed_s / AVERAGE_S)
            part_s = AVERAGE_S * (1.0 - kept)
            self._seconds = self._seconds * kept + part_s
            for urgency in range(CLASSES):
                rate = max(0, arrived[urgency] - self._counts[urgency]) / passed_s
                self._requests[urgency] = self._requests[urgency] * kept + rate * part_s
        self._at = now
        self._counts = arrived[:]

    def of(self, urgency: int) -> float:
        """Return the requests per second of a class; 0 if no rate is known."""
        return self._requests[urgency] / self._seconds if self._seconds > 0.0 else 0.0


class TurnModel:
    """The predicted service of one queue, computed from its state at one time."""

    __slots__ = (
        "_age_s",
        "_arrivals",
        "_backlog",
        "_capacity",
        "_cost",
        "_demand",
        "_given",
        "_made_at",
        "_rules",
        "_sent",
        "_stride",
        "_table",
        "_waiting",
        "rates",
    )

    def __init__(self, rules: Rules, stride: Stride) -> None:
        self._rules = rules
        self._stride = stride
        self.rates = ArrivalRates()
        self._made_at = -INFINITY
        self._capacity = 0.0  # The cost that is served per second; 0: unknown.
        # By class, at the time of the state:
        self._waiting = [0.0] * CLASSES  # the waiting requests,
        self._age_s = [0.0] * CLASSES  # the wait of the oldest one,
        self._arrivals = [0.0] * CLASSES  # the requests that arrive per second,
        self._cost = [1.0] * CLASSES  # the mean cost of a request.
        # By class, at the end of the last step:
        self._backlog = [0.0] * CLASSES
        self._sent = [0.0] * CLASSES
        self._demand = [0.0] * CLASSES  # the cost that could be served in the current step,
        self._given = [0.0] * CLASSES  # and the cost that is served in it.
        # By class, the requests that are served until the end of each step.
        self._table = [[0.0] * _STEPS for _ in range(CLASSES)]

    def outdate(self) -> None:
        """Note that the rules have changed, so the table cannot be used any more."""
        self._made_at = -INFINITY

    def is_fresh(self, urgency: int, ahead: int, now: float) -> bool:
        """Whether the table can be used for a request behind `ahead` requests of its class."""
        return now < self._made_at + FRESH_S and ahead <= 1.5 * self._waiting[urgency] + 1.0

    def compute(self, waiting: list[int], ages_s: list[float], capacity: float, now: float) -> None:
        """Compute the service from the state of the queue.

        `waiting`, `ages_s`: by class, the number of waiting requests and the wait of the oldest
        one. `capacity`: the cost that is served per second, of all classes; 0: unknown.
        """
        stride = self._stride
        self._made_at = now
        is_known = self._rules.mode == WEIGHTED
        self._capacity = capacity if is_known else 0.0
        for urgency in range(CLASSES):
            self._waiting[urgency] = self._backlog[urgency] = float(waiting[urgency])
            self._age_s[urgency] = ages_s[urgency]
            self._arrivals[urgency] = self.rates.of(urgency)
            self._cost[urgency] = stride.costs[urgency]
            self._sent[urgency] = 0.0
        if self._capacity <= 0.0:
            return
        time_s = 0.0
        for index in range(_STEPS):
            end_s = _ENDS[index]
            self._step(time_s, end_s - time_s)
            time_s = end_s
            for urgency in range(CLASSES):
                self._table[urgency][index] = self._sent[urgency]

    def wait_s(self, urgency: int, ahead: float) -> float:
        """Return the predicted wait of a new request behind `ahead` requests of its class; below 0:
        unknown. After these requests, it gets the next place."""
        if self._capacity <= 0.0:
            return UNKNOWN_S
        waiting = self._waiting[urgency]
        if ahead > waiting:  # The table would have them arrive later.
            return self._served_s(urgency, waiting) * (ahead + 1.0) / (waiting + 1.0)
        return self._served_s(urgency, ahead)

    def _served_s(self, urgency: int, ahead: float) -> float:
        """As `wait_s`, for at most as many requests ahead as were in the state."""
        place_s = self._cost[urgency] / self._capacity
        if ahead <= 0.0:
            return place_s
        sent, times = self._table[urgency], _ENDS
        low, high = 0, _STEPS - 1
        if sent[high] < ahead:  # Later than the last step: its rate continues.
            rate = (sent[high] - sent[high - 1]) / (times[high] - times[high - 1])
            return min(_LONGEST_S, times[high] + (ahead - sent[high]) / max(rate, _LITTLE))
        while low < high:
            middle = (low + high) // 2
            if sent[middle] < ahead:
                low = middle + 1
            else:
                high = middle
        before, since = (sent[low - 1], times[low - 1]) if low else (0.0, 0.0)
        return place_s + since + (times[low] - since) * (ahead - before) / (sent[low] - before)

    def _step(self, time_s: float, step_s: float) -> None:
        """Serve all classes for `step_s` seconds."""
        demand, given = self._demand, self._given
        for urgency in range(CLASSES):
            arrived = self._arrivals[urgency] * step_s
            self._backlog[urgency] = self._backlog[urgency] + arrived
            demand[urgency] = self._backlog[urgency] * self._cost[urgency]
            given[urgency] = 0.0
        left = self._capacity * step_s
        given[CRITICAL] = min(left, demand[CRITICAL])
        left -= given[CRITICAL]
        weights, starved = [0.0] * CLASSES, [0.0] * CLASSES
        are_all_starved = True
        for urgency in range(HIGH, CLASSES):
            if demand[urgency] <= _LITTLE:
                continue
            age_s = self._oldest_s(urgency, time_s)
            weights[urgency] = self._stride.weight(self._rules.aged(float(urgency), age_s))
            if age_s >= self._rules.classes[urgency].promote_s:
                starved[urgency] = 1.0
            else:
                are_all_starved = False
        if any(starved):
            self._share(left if are_all_starved else 0.5 * left, starved)
        self._share(left, weights)
        for urgency in range(CLASSES):
            served = given[urgency] / self._cost[urgency]
            self._sent[urgency] = self._sent[urgency] + served
            self._backlog[urgency] = max(0.0, self._backlog[urgency] - served)

    def _oldest_s(self, urgency: int, time_s: float) -> float:
        """Return the wait of the oldest request of a class, `time_s` after the time of the state.

        The waiting requests arrived at equal intervals.
        """
        sent, waiting = self._sent[urgency], self._waiting[urgency]
        if sent < waiting:
            return time_s + self._age_s[urgency] * (1.0 - sent / waiting)
        arrivals = self._arrivals[urgency]
        return max(0.0, time_s - (sent - waiting) / arrivals) if arrivals > 0.0 else 0.0

    def _share(self, cost: float, weights: list[float]) -> None:
        """Share this cost by weight among the classes with a weight above 0.

        A class gets no less than what `_given` has for it, and no more than its demand. The level
        is what a class of weight 1 gets without these limits; it is found by bisection.
        """
        demand, given = self._demand, self._given
        needed = low = high = 0.0
        least = INFINITY
        for urgency in range(HIGH, CLASSES):
            if weights[urgency] > 0.0:
                needed += demand[urgency]
                high = max(high, demand[urgency] / weights[urgency])
                least = min(least, weights[urgency])
        if needed > cost:
            high = min(high, cost / least)
            for _ in range(_HALVINGS):
                if high - low <= _EXACT * high:
                    break
                level = 0.5 * (low + high)
                total = 0.0
                for urgency in range(HIGH, CLASSES):
                    if weights[urgency] > 0.0:
                        part = min(demand[urgency], level * weights[urgency])
                        total += max(given[urgency], part)
                if total > cost:
                    high = level
                else:
                    low = level
            high = low
        for urgency in range(HIGH, CLASSES):
            if weights[urgency] > 0.0:
                part = min(demand[urgency], high * weights[urgency])
                given[urgency] = max(given[urgency], part)
