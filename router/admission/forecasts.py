"""Predicts the time to first token of tickets that begin to wait, and learns from their waits.

Joins the prediction of the wait (`wait_forecast.py`, `turn_model.py`), the marks of waiting tickets
(`wait_progress.py`) and the intervals of the whole time to first token (`core/ttft_estimate.py`).

Must never: add, send or end a ticket.
"""

from __future__ import annotations

from policies.queueing.ticket import Ticket
from router.admission.counts import QueueCounts
from router.admission.pool import Pool
from router.admission.rules import Rules
from router.admission.service_rate import ServiceRate
from router.admission.turn_model import TurnModel
from router.admission.wait_forecast import WaitForecast, WaitForecaster
from router.admission.wait_progress import WaitProgress
from router.admission.waiting.stride import Stride
from router.admission.waiting.wait_lists import WaitLists
from router.core.errors import RouterError
from router.core.ttft_estimate import FEW, LATER, SOON, TtftEstimates
from router.core.urgency import BATCH


class Forecasts:
    """The predictions for the waiting tickets of one queue."""

    __slots__ = (
        "_counts",
        "_estimates",
        "_forecaster",
        "_pool",
        "_rules",
        "_service_rate",
        "_wait_lists",
        "progress",
        "turns",
    )

    def __init__(
        self,
        rules: Rules,
        pool: Pool,
        wait_lists: WaitLists,
        stride: Stride,
        service_rate: ServiceRate,
        counts: QueueCounts,
        estimates: TtftEstimates | None,
    ) -> None:
        self._rules = rules
        self._pool = pool
        self._wait_lists = wait_lists
        self._service_rate = service_rate
        self._counts = counts
        self._estimates = estimates
        self._forecaster = WaitForecaster()
        self.progress = WaitProgress()
        self.turns = TurnModel(rules, stride)

    def begins(self, ticket: Ticket) -> None:
        """Note that a ticket with a forecast begins to wait."""
        forecast: WaitForecast = ticket.forecast
        if forecast.estimate is not None:
            self.progress.begins(forecast, ticket.urgency, self.turns)

    def sent(self, ticket: Ticket, now: float) -> None:
        """Learn from a ticket that waited and is sent."""
        if ticket.forecast is not None:
            self._forecaster.sent(ticket.forecast, ticket.urgency, now)
            ticket.forecast = None
        self.progress.sent(ticket.urgency, now)

    def late(self, ticket: Ticket, now: float) -> RouterError | None:
        """Estimate the time to first token of a new request that has to wait.

        Returns the error if the request must be refused, because its first token would be late.
        """
        forecast: WaitForecast = ticket.forecast
        estimates, wait_lists, urgency = self._estimates, self._wait_lists, ticket.urgency
        concurrency = ticket.concurrency
        holders = wait_lists.holders
        if (
            estimates is None
            or not self._pool.eligible(ticket.lane)
            # The limit of its API key may block the request for an unknown time.
            or (
                concurrency is not None
                and concurrency.free(urgency == BATCH) <= holders.waiting_of(ticket)
            )
        ):
            ticket.forecast = None
            return None
        if not self.turns.is_fresh(urgency, wait_lists.eligible_of[urgency], now):
            self._model_turns(now)
        self._forecaster.begins(
            forecast,
            urgency,
            wait_lists.eligible_of[urgency],
            holders.waiting_in(ticket),
            self.turns,
            now,
        )
        if forecast.wait_s < 0.0 or forecast.service_s <= 0.0:
            return None
        state = SOON if forecast.in_class <= FEW else LATER
        predicted_s = forecast.wait_s + forecast.service_s
        account = ticket.flow.account
        estimate = estimates.of(urgency, state, account, predicted_s, forecast.idle_s, now)
        forecast.estimate = estimate
        if not self._rules.classes[urgency].refuses_late:
            return None
        due = min(ticket.deadline, ticket.view.arrived + ticket.view.ttft_slo_s)
        if not estimate.is_late(due, now):
            return None
        estimate.void()
        return estimate.late_error(due)

    def _model_turns(self, now: float) -> None:
        """Predict the service of all classes from the present state of the queue."""
        turns, wait_lists = self.turns, self._wait_lists
        turns.rates.count(self._counts.arrived_to_be_sent(), now)
        capacity = self._service_rate.cost_per_s(now) if wait_lists.eligible else 0.0
        ages_s = wait_lists.ages_s(now, is_eligible=True)
        turns.compute(wait_lists.eligible_of, ages_s, capacity, now)
