"""The attempts of one request: begins and ends them, and releases what they hold.

Most requests have one attempt. There are four reasons for another one:

- A retry follows a failed attempt (`retries.py`).
- A hedge runs in parallel to another attempt, if the hedger asks for it, at most once per request.
  The first attempt that shows content wins. All other attempts are cancelled in the same call.
- Another replica is asked for the rest of a stream that broke (`resumption.py`).
- If a request cannot be served, it goes to the next fallback of its model (`placing.py`).

A request that is preempted, or whose replica is reclaimed, is also sent again. `reports.py` reports
each event of an attempt to the parts that learn from it. The decisions are in modules above:
`placing.py` begins, `retries.py` decides after a failure, `watch.py` acts on time limits.

The proxy and the simulator both run this driver. The proxy's requests send bytes; the simulator's
requests run on engine cores (`request.py`).

Must never: use bytes or sockets, choose a replica, exceed the retry budget, depend on whether the
time is real or simulated, or leave a lease or a timer behind. Every request ends in `cancel` or
with its last attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policies.queueing.ticket import SENT
from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.deadlines import NOT_SINCE
from router.dispatch.driver.reports import (
    answered_badly,
    blame,
    contradicted,
    ended_unshown,
    refusal_shown,
)
from router.dispatch.driver.request import Request, Sender
from router.dispatch.driver.speed_samples import sample_dispatched
from router.fleet.replica import Replica
from router.wire.sweep import NEVER


class RequestDriver(Sender):
    """Drives the attempts of one request. Times are monotonic seconds."""

    __slots__ = (
        "_alarm",
        "_budgeted",
        "_then",
        "context",
        "is_over",
        "priority_rejected_by",
        "request",
        "state",
    )
    __deletable__ = ("request",)  # Lets compiled code delete the attribute.

    def __init__(self, request: Request, context: Context) -> None:
        self.request = request
        request.sender = self
        self.context = context
        self.state = request.state
        # A replica that seems to reject the `priority` field. That replica gets this request
        # without the field.
        self.priority_rejected_by: Replica | None = None
        self.is_over = False  # Whether the request has ended.
        self._budgeted = False  # Whether a retry of the request counts in the retry budget.
        # Timer of a hedge, or of the pause before a retry or an answer, and what it calls.
        self._alarm: Alarm | None = None
        self._then: Callable[[], None] | None = None
        context.budget.requests += 1

    # -- beginning -------------------------------------------------------------------------------

    def begin(self, replica: Replica, now: float, *, fresh: bool = False) -> None:
        """Send the request to a replica. `fresh`: use a new connection."""
        self.go(self.prepare(replica, now), fresh=fresh)

    def go(self, attempt: Attempt, *, fresh: bool = False) -> None:
        """Send a prepared attempt, unless its request has ended in the meantime."""
        if attempt not in self.state.live:
            return
        due = NEVER
        request = self.request
        route = request.route
        if route.inference and route.is_known and not route.light:
            # A retry may hang like a first attempt, so it may be hedged, too. A request gets at
            # most one hedge.
            hedges_as = "" if attempt.index and self.state.was_hedged else request.hedges_as
            try:
                due = self.context.hedger.dispatched(
                    request.view, attempt, hedges_as, attempt.began
                )
            except Exception as err:  # Without a hedge, the request can still be answered.
                self.context.log_defect(err)
        # A request that cannot be repeated needs a new connection, which cannot be stale.
        request.open(attempt, fresh or request.is_sent_once())
        # The call of `open` may have ended the attempt and its request.
        if due != NEVER and attempt in self.state.live:
            if due <= attempt.began:
                self._hedge()
            else:
                self.set_alarm(due, self._hedge)

    def prepare(
        self, replica: Replica, now: float, hedge: bool = False, rest: list[bytes] | None = None
    ) -> Attempt:
        """Create an attempt: take its lease, and add its prompt to the replica's prefix index.

        Every attempt begins here. Raises RuntimeError if the request may not be sent to the
        replica's region.
        """
        request, context = self.request, self.context
        if not self.may_use(replica):
            # Every list of candidates is filtered, so this is a defect. The prompt is not sent.
            allowed = request.view.allowed
            raise RuntimeError(f"{replica.id} is not in the regions {allowed} of the request")
        tokens, held = context.chooser.dispatched(request.view, replica, now)
        attempt = self.state.begin(
            replica,
            now,
            tokens,
            held,
            request.view.stream,
            hedge=hedge,
            rest=rest,
            light=request.route.light,
        )
        request.attach(attempt)
        request.view.attempts = attempt.index + 1
        queue = context.queue
        if queue is not None:
            queue.sent(request, replica, now, is_extra=hedge or rest is not None)
        if request.view.stream:
            attempt.is_alone = replica.waiting <= 1
            if request.route.inference and rest is None and not request.route.light:
                sample_dispatched(attempt, request.view.prompt_tokens, now)
        request.deadlines.began(attempt, now)
        return attempt

    def may_use(self, replica: Replica) -> bool:
        """Whether the request may be sent to the region of a replica now."""
        allowed = self.request.view.allowed
        return allowed is None or allowed.allows(replica.region)

    def barred(self, attempt: Attempt) -> Reason | None:
        """Return why the request may not be sent over the connection that the attempt just got.

        While the attempt waited for its connection, a reload may have changed the regions of the
        key or of the replica, or the request may have become suspect. `None`: it may be sent.
        """
        if not self.may_use(attempt.at):
            return Reason.REGION_NOT_ALLOWED
        return Reason.SUSPECT_REQUEST if self.is_suspect(self.context.scheduler.now()) else None

    def is_suspect(self, now: float) -> bool:
        """Whether the same body was in flight when two engines died."""
        suspects = self.context.fleet.suspects
        return not suspects.is_empty and suspects.refuses(self.request.digest(), now)

    def connected(self, attempt: Attempt) -> None:
        """Mark the attempt as sent, because it has a connection."""
        self.request.deadlines.connected(attempt)
        self.state.sent(attempt)
        self.request.unreached_since = NOT_SINCE

    def may_commit_early(self, is_draining: bool) -> bool:
        """Whether an early 200 may be sent, because the request will not be refused any more."""
        request, queue = self.request, self.context.queue
        ticket, deadlines = request.ticket, request.deadlines
        if self.state.kept_error is not None:
            return False  # Another attempt only compares answers; the client may get the error.
        if ticket is None or queue is None:
            return True
        if request.unreached_since >= 0.0:
            return False  # No early 200, because a 503 may follow.
        is_bounded = is_draining or deadlines.total_due != NEVER
        if deadlines.waits_since >= 0.0 and is_bounded:
            return False
        return queue.pools.allows_early_status(ticket)

    def allow_hedge(self, header: bytes | None, may_ask: bool, for_choices: bool = True) -> None:
        """Set `Request.hedges_as`, the class under which the request may be hedged.

        It stays "" if a second copy could do harm, or if the request is not kept. `header`,
        `may_ask`: see `Hedger.hedges_as`. `for_choices`: a request for several choices may be
        hedged, too.
        """
        request = self.request
        route = request.route
        is_safe = route.is_known and not route.light and request.may_move()
        if is_safe and (for_choices or request.view.choices <= 1):
            stated = request.urgency.stated
            request.hedges_as = self.context.hedger.hedges_as(stated, header, may_ask)

    def can_send_again(self) -> bool:
        """Whether the request may be sent to another replica, too."""
        request = self.request
        return (
            request.body is not None
            and request.pinned is None
            and self.state.commit != Commit.CONTENT
            and not self.context.closing
        )

    # -- hedges, and the first content -----------------------------------------------------------

    def _hedge(self) -> None:
        """Send a hedge if no content has come and the hedger allows one."""
        if len(self.state.live) != 1 or not self.can_send_again():
            return
        if self.state.kept_error is not None:
            return  # The attempt only compares answers; the request may be the cause of the error.
        first = self.state.live[0]
        try:
            self._send_hedge(first, self.context.scheduler.now())
        except Exception as err:  # Without a hedge, the request can still be answered.
            if first not in self.state.live:
                raise
            self._drop_hedge(first)
            self.context.log_defect(err)

    def _send_hedge(self, first: Attempt, now: float) -> None:
        request, context = self.request, self.context
        # The list of all replicas of the model is not copied; in a large fleet the hedger checks
        # only a few of them.
        view = request.view
        self.limit_context()
        pool = context.fleet.serving.of(view.model, view.allowed)
        request.see_work_of(pool)
        others = context.hedger.backup(view, first, pool, now)
        if others and first.index:
            tried = self.state.tried()
            others = [replica for replica in others if replica not in tried]
        if not others:
            asks_at = context.hedger.asks_again_at()
            if asks_at != NEVER:
                self.set_alarm(asks_at, self._hedge)
            return
        replica = context.chooser.choose(view, others, now)
        hedge = self.prepare(replica, now, hedge=True)
        context.hedger.sent(view, hedge, now)
        request.open(hedge, False)

    def _drop_hedge(self, first: Attempt) -> None:
        """End the hedge that could not be sent, if it has a lease. The first attempt goes on."""
        now = self.context.scheduler.now()
        for hedge in [*self.state.live]:
            if hedge is not first:
                self.state.withdrawn(hedge, now)
                self.request.drop(hedge)
                self._report_cancelled([hedge], now)

    def won(self, attempt: Attempt, now: float, has_comments: bool = False) -> bool:
        """Handle the first content of an attempt, or its error answer that is relayed.

        Returns True if the attempt wins; the other attempts are then cancelled, also at their
        engines. Returns False if the attempt lost; none of its bytes may reach the client.
        `has_comments`: the client's stream may get comments between two events.
        """
        if not self.state.content(attempt):
            return False
        self.clear_alarm()
        request, context = self.request, self.context
        request.deadlines.won(attempt)
        if len(self.state.attempts) > 1 and not attempt.error_status:
            contradicted(request, context, self.state.recent)
        if len(self.state.live) > 1:
            losers = [other for other in self.state.live if other is not attempt]
            computed = [request.computed_tokens(other) for other in losers]
            for other in losers:
                request.drop(other)
            self.state.outrun(now)
            for other, tokens in zip(losers, computed, strict=True):
                ended_unshown(request, context, other, now)
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
        request.work.shown(attempt.at, now)
        request.deadlines.content(now, has_comments)
        return True

    # -- another attempt -------------------------------------------------------------------------

    def others(self) -> Sequence[Replica] | None:
        """Return the fit replicas where the request has not failed; `None`: there are none.

        The result is empty if there are such replicas, but all of them are at their limits.
        """
        self.limit_context()
        try:
            return self.request.candidates(self.state.tried())
        except RouterError as err:
            return [] if err.reason is Reason.FLEET_FULL else None

    def limit_context(self) -> None:
        """Apply the fleet's context lengths to the request, and tell the queue if they limit it."""
        queue = self.context.queue
        if self.request.limit_context() and queue is not None:
            queue.limits_changed(self.request)

    def take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self.context.budget.take()
            if not self._budgeted:
                self.context.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def is_queued(self) -> bool:
        """Whether requests of this kind use the admission queue, if it is enabled."""
        route = self.request.route
        return route.inference and not route.light

    def pause(self) -> None:
        """Report to the queue that the request is at no replica until it is sent again."""
        queue = self.context.queue
        if queue is not None:
            queue.pauses(self.request)

    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content.

        The request may be sent again, but not to a replica where it failed before. A ticket that
        was offered to the queue instead of the attempts has these replicas already.
        """
        # From now on, the request waits in the queue.
        self.context.first_probes.forget(self.request)
        live = self._drop_all()
        self.state.recalled(now)
        self._report_cancelled(live, now)
        ticket = self.request.ticket
        if ticket is not None and ticket.state == SENT:
            ticket.excluded = tuple(self.state.tried())

    # -- timers ----------------------------------------------------------------------------------

    def set_alarm(self, when: float, then: Callable[[], None]) -> None:
        """Call `then` at a time, instead of what was to be called before."""
        self._then = then
        alarm = self._alarm
        if alarm is None:
            alarm = self._alarm = self.context.scheduler.alarm(self._on_alarm)
        alarm.set(when)

    def _on_alarm(self) -> None:
        request, then = self.request, self._then
        try:
            if then is not None:
                then()
        except Exception as err:
            request.crashed(err)

    def clear_alarm(self) -> None:
        """Cancel the timer of a pending hedge, retry or answer."""
        if self._alarm is not None:
            self._alarm.clear()

    # -- the end ---------------------------------------------------------------------------------

    def completed(
        self, attempt: Attempt, reason: Reason, now: float, *, blames_replica: bool = False
    ) -> None:
        """End the winner, whose response is complete, and report it; its connection can be reused.

        `blames_replica`: the response contains an error that is the replica's fault.
        """
        request, fleet = self.request, self.context.fleet
        self.state.completed(attempt, now, reason)
        request.free_connection(attempt)
        fleet.attempt_ended(attempt.at, attempt.began)
        if reason is Reason.SERVER_ERROR or blames_replica:
            answered_badly(request, self.context, attempt, reason)
        elif reason is Reason.OK and not attempt.error_status:
            generates = request.route.inference and not request.route.light
            fleet.outcomes.succeeded(attempt.at, attempt.began, content=generates)
            if not fleet.suspects.is_empty:
                fleet.suspects.answered(request.digest())

    def refused(self, attempt: Attempt, reason: Reason, now: float) -> None:
        """End the winner, whose whole answer is an error, so that nothing is relayed later."""
        refusal_shown(self.request, self.context, attempt, now)
        self.completed(attempt, reason, now)

    def end_attempt(self, attempt: Attempt, reason: Reason, *, unread: bool = False) -> int:
        """End an attempt that gave no complete response. Returns the next `Step`.

        `unread`: see `judge`.
        """
        request, context = self.request, self.context
        replica = attempt.at
        shows_nothing = self.state.winner is not attempt
        began = attempt.began
        now = context.scheduler.now()
        self.leaves_live(attempt, now)
        shown = began if shows_nothing else request.last_content_at()
        blame(request, context, attempt, reason, shown)
        step = self.state.failed(
            attempt,
            reason,
            now,
            unread=unread,
            repeatable=request.route.repeatable,
            known_dead=replica.health.known_dead,
        )
        if shows_nothing:
            context.hedger.failed(request.view, attempt, now)
        context.fleet.attempt_ended(replica, began)
        return step

    def leaves_live(self, attempt: Attempt, now: float) -> None:
        """Note that an attempt is about to end; without another one, no timer is needed."""
        state = self.state
        state.live.remove(attempt)
        if not state.live:
            self.clear_alarm()
        if state.winner is not attempt:
            ended_unshown(self.request, self.context, attempt, now)

    def cancel(self, reason: Reason) -> None:
        """End all attempts and timers; the request is over."""
        live = self._drop_all()
        now = self.context.scheduler.now()
        self.state.end(reason, now)  # Releases the leases before the reports, which may fail.
        self._report_cancelled(live, now)

    def _drop_all(self) -> list[Attempt]:
        """Cancel all running attempts and all timers. Returns the attempts that were running."""
        self.clear_alarm()
        live, self.state.live = self.state.live, []
        for attempt in live:
            self.request.drop(attempt)
        return live

    def _report_cancelled(self, attempts: list[Attempt], now: float) -> None:
        """Report the ends of attempts that the router has cancelled."""
        request, context = self.request, self.context
        for attempt in attempts:
            if attempt is not self.state.winner:
                ended_unshown(request, context, attempt, now)
                context.hedger.failed(request.view, attempt, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)

    def close(self) -> None:
        """Release everything that belongs to the request and not to an attempt."""
        context = self.context
        self.is_over = True
        if self._budgeted:
            self._budgeted = False
            context.budget.give()
        context.budget.requests -= 1
        if context.first_probes:
            context.first_probes.forget(self.request)
        self.clear_alarm()
        # Break reference cycles, so that no garbage collection is needed.
        self._alarm = self._then = None
        for attempt in self.state.attempts:
            attempt.io = None
        del self.request
