"""Predicts how long a new ticket will wait, by the estimator that has fitted best lately.

An estimator multiplies a position by the seconds per ticket. No estimator fits every queue, so
there are four, and each class uses the one with the smallest recent error:

- the waiting tickets of the class, by the service rate of the class,
- those of the class and of more urgent ones, by the service rate of all classes (`service_rate.py`;
  both rates are averages over two minutes),
- the waiting tickets of the class, by the waits of the tickets that were sent last,
- the waiting tickets of the ticket's flow, by the same, for orders that share by flow.

The last two are queue length estimators whose rate is taken from the delay history; Ibrahim and
Whitt (M&SOM 2009) compare such estimators. They need no service rate, so they are known first.

A ticket that leaves without being sent teaches nothing here: the ticket behind it takes its place,
and its wait is learned.

Must never: read a clock, or keep a ticket.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.service_rate import ServiceRate
from router.core.ttft_estimate import TtftEstimate

BY_CLASS_RATE: Final = 0
BY_TOTAL_RATE: Final = 1
BY_CLASS_WAITS: Final = 2
BY_FLOW_WAITS: Final = 3
ESTIMATORS: Final = ("class_rate", "total_rate", "class_waits", "flow_waits")
SMOOTHING: Final = 1.0 / 16.0  # Weight of a new wait, and of a new error.
UNKNOWN_S: Final = -1.0
_SHORTEST_S: Final = 1e-3
_UNTRIED: Final = 1.0  # The assumed error of an estimator that was not compared yet.


class WaitForecast:
    """The predicted wait of one ticket, kept until it is sent."""

    __slots__ = (
        "began",
        "estimate",
        "idle_s",
        "in_class",
        "in_flow",
        "predicted_s",
        "service_s",
        "wait_s",
    )

    def __init__(self, service_s: float, idle_s: float) -> None:
        """`service_s`: predicted seconds from the dispatch to the first token; 0: unknown.
        `idle_s`: the same at an idle replica."""
        self.service_s = service_s
        self.idle_s = idle_s
        self.began = 0.0  # Time at which the wait begins, in monotonic seconds.
        self.in_class = self.in_flow = 0.0  # The positions, from 1.
        self.predicted_s: list[float] = []  # By estimator; below 0: unknown.
        self.wait_s = UNKNOWN_S  # The prediction of the chosen estimator.
        self.estimate: TtftEstimate | None = None


class _Estimator:
    """The recent error of one estimator for one class, and its learned seconds per ticket."""

    __slots__ = ("compared", "error", "log_s", "waits")

    def __init__(self) -> None:
        self.error = _UNTRIED  # The mean absolute error of the logarithm of the wait.
        self.compared = 0
        self.log_s = 0.0  # The mean logarithm of the seconds per ticket.
        self.waits = 0

    def compare(self, predicted_s: float, took_s: float) -> None:
        if predicted_s > 0.0:
            self.compared += 1
            weight = max(SMOOTHING, 1.0 / self.compared)
            off = abs(log(took_s / max(predicted_s, _SHORTEST_S)))
            self.error += weight * (off - self.error)

    def learn(self, seconds: float) -> None:
        self.waits += 1
        weight = max(SMOOTHING, 1.0 / self.waits)
        self.log_s += weight * (log(seconds) - self.log_s)

    def of(self, position: float) -> float:
        return position * exp(self.log_s) if self.waits else UNKNOWN_S


class WaitForecaster:
    """Predicts the waits of one queue."""

    __slots__ = ("estimators",)

    def __init__(self) -> None:
        self.estimators = [[_Estimator() for _ in ESTIMATORS] for _ in range(CLASSES)]

    def begins(
        self,
        forecast: WaitForecast,
        urgency: int,
        eligible_of: list[int],
        in_flow: int,
        rate: ServiceRate,
        now: float,
    ) -> None:
        """Fill in the forecast of a ticket that begins to wait.

        `eligible_of`: the waiting tickets of each class. `in_flow`: those of the ticket's flow and
        class. The new ticket is not counted.
        """
        estimators = self.estimators[urgency]
        in_class = eligible_of[urgency]
        urgent = 0
        for other in range(urgency + 1):
            urgent += eligible_of[other]
        forecast.began = now
        forecast.in_class = in_class + 1.0
        forecast.in_flow = in_flow + 1.0
        # A rate counts the time in which requests wait, so it is unknown if none waits.
        forecast.predicted_s = [
            rate.expected_s(urgency, in_class + 1, now) if in_class else UNKNOWN_S,
            rate.expected_s(None, urgent + 1, now) if urgent else UNKNOWN_S,
            estimators[BY_CLASS_WAITS].of(forecast.in_class),
            estimators[BY_FLOW_WAITS].of(forecast.in_flow),
        ]
        least = 0.0
        for index in range(len(estimators)):
            predicted_s = forecast.predicted_s[index]
            error = estimators[index].error
            if predicted_s >= 0.0 and (forecast.wait_s < 0.0 or error < least):
                forecast.wait_s = predicted_s
                least = error

    def sent(self, forecast: WaitForecast, urgency: int, now: float) -> None:
        """Learn from a ticket whose wait has ended, because it is sent."""
        took_s = max(now - forecast.began, _SHORTEST_S)
        estimators = self.estimators[urgency]
        for index in range(len(estimators)):
            estimators[index].compare(forecast.predicted_s[index], took_s)
        estimators[BY_CLASS_WAITS].learn(took_s / forecast.in_class)
        estimators[BY_FLOW_WAITS].learn(took_s / forecast.in_flow)
