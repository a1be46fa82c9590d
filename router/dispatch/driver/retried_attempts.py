"""Sends a request again: to another replica, through the queue, or to a fallback of its model.

- A retry for lack of capacity begins after a pause. Other retries begin at once.
- If no replica accepts the request now, it waits in the queue. If the first probe of a new replica
  is pending, the request waits for that probe (`first_probes.py`).
- If a request cannot be served, it goes to the next fallback of its model (`fallbacks.py`).
- Otherwise the client gets an error.

`request_driver.py` extends this class; it decides which of these steps follows a failure.

Must never: choose a replica, or exceed the retry budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from policies.queueing.ticket import SENT
from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.driven_request import NOT_SINCE, DrivenRequest
from router.dispatch.driver.fallbacks import CONDITIONS, next_fallback
from router.dispatch.driver.hedged_attempts import HedgedAttempts
from router.dispatch.resumption import RestDriver
from router.fleet.replica import Replica

_NOTICE_S: Final = 0.1  # Seconds in which the death of an engine is mostly noticed.


class RetriedAttempts(HedgedAttempts, RestDriver):
    """The attempts of one request, which may be sent again. Times are monotonic seconds."""

    __slots__ = ("_budgeted", "_retry_alarm")

    def __init__(self, request: DrivenRequest, context: Context) -> None:
        super().__init__(request, context)
        self._budgeted = False  # Whether a retry of the request counts in the retry budget.
        self._retry_alarm: Alarm | None = None  # Timer of the pause before a retry.
        context.budget.requests += 1

    # -- retrying ------------------------------------------------------------------------------

    def others(self) -> Sequence[Replica] | None:
        """Return the fit replicas where the request has not failed; `None`: there are none.

        The result is empty if there are such replicas, but all of them are at their limits.
        """
        self._request.limit_context()
        try:
            return self._request.candidates(self._tried())
        except RouterError as err:
            return [] if err.reason is Reason.FLEET_FULL else None

    def take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self._context.budget.take()
            if not self._budgeted:
                self._context.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def _retry(self, cause: Reason) -> None:
        """Try another replica after a pause.

        Requests that fail for lack of capacity fail at the same time, so random pauses spread their
        retries.
        """
        context = self._context
        pause_s = context.backoff_s(self._rules, len(self.state.attempts))
        if pause_s > 0.0:
            self._pause()
            alarm = self._retry_alarm = context.scheduler.alarm(partial(self._end_pause, cause))
            alarm.set(context.scheduler.now() + pause_s)
        else:
            self._retry_now(cause)

    def _end_pause(self, cause: Reason) -> None:
        request = self._request
        self._retry_alarm = None
        try:
            self._retry_now(cause)
        except Exception as err:
            request.crashed(err)

    def _retry_now(self, cause: Reason) -> None:
        if not self._can_send_again():
            self._give_up(cause)
            return
        others = self.others()
        if others is not None:
            self._context.first_probes.forget(self._request)
            self._go_on(others, cause)
        elif not self._wait_for_probe(cause):
            self._give_up(cause)

    def _go_on(self, others: Sequence[Replica], cause: Reason) -> None:
        """Send the request to one of `others`, through the admission queue if it is enabled.

        `others` is empty if all replicas are at their limits.
        """
        request, context = self._request, self._context
        queue = context.queue
        if queue is not None and self._is_queued():
            try:
                replica = queue.retry(request, others, self._tried())
            except RouterError:
                self._give_up(self.state.blame)
                return
            context.metrics.retries(cause)
            if replica is not None:
                self.begin(replica, context.scheduler.now())
        elif others:
            context.metrics.retries(cause)
            now = context.scheduler.now()
            self.begin(context.chooser.choose(request.view, others, now), now)
        else:
            self._give_up(self.state.blame)

    def _is_queued(self) -> bool:
        """Whether requests of this kind use the admission queue, if it is enabled."""
        route = self._request.route
        return route.inference and not route.light

    # -- waiting -------------------------------------------------------------------------------

    def _wait_for_probe(self, cause: Reason) -> bool:
        """Wait for the first probe of a new replica, because no other replica is left.

        Returns False if no first probe is pending, or if the probe cannot change the error.
        """
        retry, late = partial(self._retry_now, cause), partial(self._give_up, cause)
        holds = self._context.first_probes.hold(self._request, retry, late)
        if holds:
            self._pause()
        return holds

    def _wait_again(self, replica: Replica) -> bool:
        """Queue the request again, because no replica accepts connections; `replica` failed last.

        Returns False if the request cannot wait.
        """
        request, context = self._request, self._context
        queue = context.queue
        if queue is None or context.closing or not request.can_resend() or not self._is_queued():
            return False
        return queue.wait_again(request, replica)

    def _pause(self) -> None:
        """Report to the queue that the request is at no replica until it is sent again."""
        queue = self._context.queue
        if queue is not None:
            queue.pauses(self._request)

    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content.

        The request may be sent again, but not to a replica where it failed before. A ticket that
        was offered to the queue instead of the attempts has these replicas already.
        """
        # From now on, the request waits in the queue.
        self._context.first_probes.forget(self._request)
        live = self._drop_all()
        self.state.recalled(now)
        self._report_cancelled(live, now)
        ticket = self._request.ticket
        if ticket is not None and ticket.state == SENT:
            ticket.excluded = tuple(self._tried())

    # -- fallbacks -----------------------------------------------------------------------------

    def falls_back(self, reason: Reason) -> bool:
        """Send a request to its next fallback, if it has one. No attempt may be running.

        `reason`: why the request would end without a fallback. Returns False if it must end.
        """
        if self._request.named is None or self.live:
            return False
        return self._falls_to(self._fallback_after(reason), reason)

    def skips_absent_model(self) -> bool:
        """Send a new request to a fallback if no replica of its model is up.

        Without a fallback, the request may wait for a replica.
        """
        request, fleet = self._request, self._context.fleet
        if request.named is None or fleet.models.awaits_probe:
            return False
        if fleet.serving.of(request.view.model, request.view.allowed):
            return False
        return self.falls_back(Reason.NO_REPLICA)

    def falls_back_from(self, attempt: Attempt, reason: Reason) -> bool:
        """Send the request to a fallback instead of sending the attempt's error to the client.

        Returns False if the error must be sent.
        """
        if self._request.named is None or self.holds_errors() or attempt not in self.live:
            return False
        index = self._fallback_after(reason)
        if index < 0:
            return False
        self._request.discard(attempt)
        self._end_attempt(attempt, reason, reused=False, received=True)
        return self._falls_to(index, reason)

    def _fallback_after(self, reason: Reason) -> int:
        request, context = self._request, self._context
        if context.closing or not request.can_resend():
            return -1
        return next_fallback(request, self.state, context.fleet, reason)

    def _falls_to(self, index: int, reason: Reason) -> bool:
        """Send the request to one of its fallbacks. Below 0: there is none; returns False."""
        request, context = self._request, self._context
        named = request.named
        if index < 0 or named is None:
            return False
        now = context.scheduler.now()
        self._clear_alarms()
        context.first_probes.forget(request)
        if request.waits_since >= 0.0:
            request.end_wait(now)
        queue = context.queue
        if queue is not None and self._is_queued():
            queue.over(request, reason, None, -1, 0, now)
        if request.estimate is not None:
            request.estimate.void()
            request.estimate = None
        request.unreached_since = NOT_SINCE
        self.state.fall_back()
        target = named.fallbacks[index]
        request.next_fallback = index + 1
        request.goes_to(target, context.fleet.models.routed_target(target))
        context.metrics.fallback(CONDITIONS[reason])
        request.place()
        return True

    # -- giving up -----------------------------------------------------------------------------

    def _give_up(self, reason: Reason) -> None:
        """End the request without another attempt at its model."""
        if not self.replaces_error(reason):
            self._request.answer_failure(reason)

    def replaces_error(self, reason: Reason, is_final: bool = False) -> bool:
        """Send the request to a fallback, or else send the client an attempt's kept error answer.

        Returns False if neither is possible. Then the client gets the router's own error for
        `reason`. `is_final`: the request may not go to a fallback; see `RouterError`.
        """
        if not is_final and self.falls_back(reason):
            return True
        if self.state.kept_error is None or self.state.over:
            return False
        self.cancel(reason)
        self._request.send_kept_error()
        return True

    def _answer_later(self, reason: Reason) -> None:
        """Answer a request with an error after a pause, in which a death of an engine is noticed.

        So a client that repeats the request at once is refused if the request kills engines.
        """
        self._pause()
        scheduler = self._context.scheduler
        alarm = self._retry_alarm = scheduler.alarm(partial(self._answer_now, reason))
        alarm.set(scheduler.now() + _NOTICE_S)

    def _answer_now(self, reason: Reason) -> None:
        request = self._request
        self._retry_alarm = None
        try:
            request.answer_failure(reason)
        except Exception as err:
            request.crashed(err)

    # -- the end -------------------------------------------------------------------------------

    def _clear_alarms(self) -> None:
        """Cancel the timers of a pending hedge or retry."""
        super()._clear_alarms()
        if self._retry_alarm is not None:
            self._retry_alarm.clear()
            self._retry_alarm = None

    def close(self) -> None:
        context = self._context
        if self._budgeted:
            self._budgeted = False
            context.budget.give()
        context.budget.requests -= 1
        if context.first_probes:
            context.first_probes.forget(self._request)
        super().close()
