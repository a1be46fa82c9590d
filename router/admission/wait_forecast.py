"""Predicts how long a new ticket will wait, by the estimator that has fitted best lately.

No estimator fits every queue, so there are three. Each class uses the estimator `turns`, unless
the recent error of another one is clearly smaller, or the model knows no rate:

- `turns`: a model of the service that the turns of the classes give to the class from now on. It
  includes the requests that will arrive and overtake the ticket (`turn_model.py`).
- `class_waits` uses the position in the class, and the waits of the tickets that were sent last.
- `flow_waits` uses the position among the tickets of the same class and flow (an account's user),
  and the waits of the tickets that were sent last. It is for order policies that share by flow.

The last two estimators take their rate from past waits; Ibrahim and Whitt (M&SOM 2009) compare such
estimators. They need no service rate. The position divided by the service rate of the class over
the last two minutes is no estimator here: simulated with strict turns at 120 % load, it was chosen
for half of the requests, and the error of class batch was seven times larger than without it.

Nothing is learned from a ticket that leaves without being sent. The ticket behind it moves up, and
the wait of that ticket is learned.

Must never: read a clock, or keep a reference to a ticket.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.turn_model import TurnModel
from router.core.ttft_estimate import TtftEstimate

BY_TURNS: Final = 0
BY_CLASS_WAITS: Final = 1
BY_FLOW_WAITS: Final = 2
ESTIMATORS: Final = ("turns", "class_waits", "flow_waits")
# Weight of a new wait in the mean wait, and of a new error in the mean error.
SMOOTHING: Final = 1.0 / 16.0
UNKNOWN_S: Final = -1.0
_SHORTEST_S: Final = 1e-3
_UNTRIED: Final = 1.0  # The assumed error of an estimator that was not compared yet.
# Another estimator is used instead of `turns` if its error is smaller by this much. The errors are
# those of tickets that were sent, so they are as old as the waits. If the service rates change, the
# other estimators become wrong, and that is known only afterwards. A constant error of `turns` does
# no harm, because the intervals learn it (`core/conformal.py`).
CLEARLY: Final = 0.3


class WaitForecast:
    """The predicted wait of one ticket, kept until it is sent."""

    __slots__ = (
        "began",
        "chosen",
        "estimate",
        "idle_s",
        "in_class",
        "in_flow",
        "is_waiting",
        "predicted_s",
        "service_s",
        "wait_s",
    )

    def __init__(self, service_s: float, idle_s: float) -> None:
        """`service_s`: predicted seconds from the dispatch to the first token; 0: unknown.
        `idle_s`: the same prediction for an idle replica."""
        self.service_s = service_s
        self.idle_s = idle_s
        self.began = 0.0  # Time at which the wait begins, in monotonic seconds.
        self.in_class = self.in_flow = 0.0  # Positions among waiting tickets, counted from 1.
        self.predicted_s: list[float] = []  # Predicted waits by estimator; below 0: unknown.
        self.chosen = BY_TURNS  # The chosen estimator: an index into `ESTIMATORS`.
        self.wait_s = UNKNOWN_S  # The prediction of the chosen estimator.
        self.is_waiting = True  # Whether the ticket waits in the queue that predicted the wait.
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
        in_class: int,
        in_flow: int,
        turns: TurnModel,
        now: float,
    ) -> None:
        """Fill in the forecast of a ticket that begins to wait.

        `in_class`: the number of waiting tickets of the same class. `in_flow`: how many of them are
        of the same flow. The new ticket is not counted in these numbers.
        """
        estimators = self.estimators[urgency]
        forecast.began = now
        forecast.in_class = in_class + 1.0
        forecast.in_flow = in_flow + 1.0
        forecast.predicted_s = [
            turns.wait_s(urgency, float(in_class)),
            estimators[BY_CLASS_WAITS].of(forecast.in_class),
            estimators[BY_FLOW_WAITS].of(forecast.in_flow),
        ]
        least = 0.0
        for index in range(len(estimators)):
            predicted_s = forecast.predicted_s[index]
            error = estimators[index].error
            if index == BY_TURNS:
                error -= CLEARLY
            if predicted_s >= 0.0 and (forecast.wait_s < 0.0 or error < least):
                forecast.chosen = index
                forecast.wait_s = predicted_s
                least = error

    def sent(self, forecast: WaitForecast, urgency: int, now: float) -> None:
        """Learn from a ticket whose wait has ended, because it is sent."""
        forecast.is_waiting = False
        took_s = max(now - forecast.began, _SHORTEST_S)
        estimators = self.estimators[urgency]
        for index in range(len(estimators)):
            estimators[index].compare(forecast.predicted_s[index], took_s)
        estimators[BY_CLASS_WAITS].learn(took_s / forecast.in_class)
        estimators[BY_FLOW_WAITS].learn(took_s / forecast.in_flow)
