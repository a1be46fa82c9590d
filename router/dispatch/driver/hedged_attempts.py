"""Begins and ends the attempts of one request, and sends copies that run beside them.

A hedge runs in parallel to another attempt, if the hedger asks for it, at most once per request.
The first attempt that shows content wins. All other attempts are cancelled in the same call.

`retried_attempts.py` extends this class.

Must never: decide what follows a failure, or leave a lease or a timer behind.
"""

from __future__ import annotations

from router.core.errors import Reason
from router.core.scheduling import Alarm
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.driven_request import DrivenRequest
from router.dispatch.driver.running_attempts import RunningAttempts
from router.fleet.replica import Replica
from router.wire.sweep import NEVER


class HedgedAttempts(RunningAttempts):
    """The attempts of one request, and their copies. Times are monotonic seconds."""

    __slots__ = ("_hedge_alarm",)

    def __init__(self, request: DrivenRequest, context: Context) -> None:
        super().__init__(request, context)
        self._hedge_alarm: Alarm | None = None

    # -- beginning -----------------------------------------------------------------------------

    def begin(self, replica: Replica, now: float, *, fresh: bool = False) -> None:
        """Send the request to a replica. `fresh`: use a new connection."""
        self.go(self.prepare(replica, now), fresh=fresh)

    def prepare(self, replica: Replica, now: float) -> Attempt:
        """Create an attempt and take its lease. The method `go` sends the attempt."""
        return self._enter(replica, now, False)

    def go(self, attempt: Attempt, *, fresh: bool = False) -> None:
        """Send a prepared attempt, unless its request has ended in the meantime."""
        if attempt not in self.live:
            return
        due = NEVER
        request = self._request
        route = request.route
        if route.inference and route.is_known and not route.light:
            # A retry may hang like a first attempt, so it may be hedged, too. A request gets at
            # most one hedge.
            hedges_as = "" if attempt.index and self.state.was_hedged else request.hedges_as
            try:
                due = self._context.hedger.dispatched(
                    request.view, attempt, hedges_as, attempt.began
                )
            except Exception as err:  # Without a hedge, the request can still be answered.
                self._context.log_defect(err)
        # A request that cannot be repeated needs a new connection, which cannot be stale.
        request.open(attempt, fresh or request.is_sent_once())
        # The call of `open` may have ended the attempt and its request.
        if due != NEVER and attempt in self.live:
            self._await_hedge(due, attempt.began)

    def _can_send_again(self) -> bool:
        """Whether the request may be sent to another replica, too."""
        request = self._request
        return (
            request.can_resend()
            and request.pinned is None
            and self.state.commit != Commit.CONTENT
            and not self._context.closing
        )

    # -- hedging -------------------------------------------------------------------------------

    def _await_hedge(self, due: float, now: float) -> None:
        if due <= now:
            self._hedge()
        else:
            self._set_hedge_alarm(due)

    def _hedge(self) -> None:
        """Send a hedge if no content has come and the hedger allows one."""
        if len(self.live) != 1 or not self._can_send_again():
            return
        if self.state.kept_error is not None:
            return  # The attempt only compares answers; the request may be the cause of the error.
        request, context = self._request, self._context
        first = self.live[0]
        now = context.scheduler.now()
        # The list of all replicas of the model is not copied; in a large fleet the hedger checks
        # only a few of them.
        view = request.view
        request.limit_context()
        pool = context.fleet.serving.of(view.model, view.allowed)
        request.see_work_of(pool)
        others = context.hedger.backup(view, first, pool, now)
        if others and first.index:
            tried = self._tried()
            others = [replica for replica in others if replica not in tried]
        if not others:
            asks_at = context.hedger.asks_again_at()
            if asks_at != NEVER:
                self._set_hedge_alarm(asks_at)
            return
        replica = context.chooser.choose(view, others, now)
        hedge = self._enter(replica, now, True)
        context.hedger.sent(view, hedge, now)
        request.open(hedge, False)

    def won(self, attempt: Attempt, now: float) -> bool:
        """Handle the first content of an attempt.

        Returns True if the attempt wins; the other attempts are then cancelled, also at their
        engines. Returns False if the attempt lost; none of its bytes may reach the client.
        """
        if not self.state.content(attempt):
            return False
        self._clear_alarms()
        attempt.first_due = NEVER
        request, context = self._request, self._context
        if len(self.state.attempts) > 1 and not attempt.error_status:
            self._contradict()
        if len(self.live) > 1:
            losers = [other for other in self.live if other is not attempt]
            self.live = [attempt]
            computed = [request.computed_tokens(other) for other in losers]
            for other in losers:
                request.drop(other)
            self.state.outrun(now)
            for other, tokens in zip(losers, computed, strict=True):
                self._ended_unshown(other, now)
                context.hedger.outrun(request.view, other, tokens, now)
                context.fleet.attempt_ended(other.at, other.began)
        ticket, queue = request.ticket, context.queue
        if ticket is None or queue is None:
            pass
        elif attempt.error_status and ticket.place is attempt.at:
            queue.pools.stays(ticket)  # An error shows nothing about the speed of answers.
        else:
            sample = attempt.speed_sample
            prefill_s = 0.0 if sample is None else sample.ttft_s
            queue.pools.shown(ticket, attempt.at, now, prefill_s)
        return True

    def _contradict(self) -> None:
        """Report that the request was answered, to the replicas that gave an error before."""
        request, outcomes = self._request, self._context.fleet.outcomes
        for attempt in self.state.recent:
            if attempt.error_status:
                is_own = attempt.reason is Reason.CREDENTIAL_REFUSED
                evidence = None if is_own else request.evidence()
                status, attempt.error_status = attempt.error_status, 0
                outcomes.contradicted(
                    attempt.at, status, evidence, attempt.began, request.request_id
                )

    # -- timers --------------------------------------------------------------------------------

    def _set_hedge_alarm(self, when: float) -> None:
        alarm = self._hedge_alarm
        if alarm is None:
            alarm = self._hedge_alarm = self._context.scheduler.alarm(self._on_hedge_alarm)
        alarm.set(when)

    def _on_hedge_alarm(self) -> None:
        request = self._request
        try:
            self._hedge()
        except Exception as err:
            request.crashed(err)

    def _clear_alarms(self) -> None:
        """Cancel the timer of a pending hedge."""
        if self._hedge_alarm is not None:
            self._hedge_alarm.clear()

    # -- the end -------------------------------------------------------------------------------

    def _end_attempt(
        self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool
    ) -> int:
        """End an attempt that gave no complete response. Returns the next `Step`."""
        request, context = self._request, self._context
        replica = attempt.at
        self.live.remove(attempt)
        if not self.live:
            self._clear_alarms()
        shows_nothing = self.state.winner is not attempt
        began = attempt.began
        now = context.scheduler.now()
        self._ended_unshown(attempt, now)
        self._blame(attempt, reason, began if shows_nothing else request.last_content_at())
        step = self.state.failed(
            attempt,
            reason,
            now,
            reused=reused,
            received=received,
            repeatable=request.route.repeatable,
            known_dead=replica.health.known_dead,
        )
        if shows_nothing:
            context.hedger.failed(request.view, attempt, now)
        context.fleet.attempt_ended(replica, began)
        return step

    def cancel(self, reason: Reason) -> None:
        """End all attempts and timers; the request is over."""
        live = self._drop_all()
        now = self._context.scheduler.now()
        self.state.end(reason, now)  # Releases the leases before the reports, which may fail.
        self._report_cancelled(live, now)

    def _drop_all(self) -> list[Attempt]:
        """Cancel all running attempts and all timers. Returns the attempts that were running."""
        self._clear_alarms()
        live, self.live = self.live, []
        for attempt in live:
            self._request.drop(attempt)
        return live

    def _report_cancelled(self, attempts: list[Attempt], now: float) -> None:
        """Report the ends of attempts that the router has cancelled."""
        context, winner = self._context, self.state.winner
        for attempt in attempts:
            self._ended_unshown(attempt, now)
            if attempt is not winner:
                context.hedger.failed(self._request.view, attempt, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)

    def close(self) -> None:
        """Release everything that belongs to the request and not to an attempt."""
        self._clear_alarms()
        self._hedge_alarm = None
        # Break reference cycles, so that no garbage collection is needed.
        for attempt in self.state.attempts:
            attempt.io = None
        del self._request
