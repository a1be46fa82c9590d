"""Drives the attempts of one request: begins them, sees them fail, lets one race another.

The state machine (`attempts.AttemptState`) says what an event means; here it is done. Most requests
have one attempt. A second attempt follows it when it failed (a retry, after a pause where it failed
for want of room), or runs beside it when the hedger says so; then the first content wins, and the
loser is cancelled in the same call. The proxy and the simulator both run this driver: the proxy's
requests send bytes, the simulator's run on engine cores (`driven_request.py`).

Must never: touch a byte or a socket, choose a replica, know whether its time is real, or leave a
lease or an alarm behind: whatever ends a request ends in `cancel` or with the last attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm
from router.dispatch.attempts import Attempt, AttemptState, Commit, Step
from router.dispatch.context import Context
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.driven_request import DrivenRequest
from router.dispatch.queued_request import NOT_SINCE
from router.dispatch.retry import PASSING, UNSENT
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.wire.sweep import NEVER

# How a stream breaks that another replica may go on with, and how it may fail to.
_BREAKS: Final = frozenset(
    {
        Reason.REPLICA_RESET,
        Reason.BAD_RESPONSE,
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.STREAM_ERROR,
        Reason.EMPTY_STREAM,
        Reason.SERVER_ERROR,
        Reason.REPLICA_BUSY,
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
    }
)


class RequestDriver:
    """The attempts of one request. Times are monotonic seconds."""

    __slots__ = (
        "_alarm",
        "_budgeted",
        "_cause",
        "_context",
        "_is_full",
        "_request",
        "_retries",
        "_rules",
        "live",
        "state",
        "untold",
    )
    __deletable__ = ("_request",)  # for the compiler

    def __init__(self, request: DrivenRequest, context: Context) -> None:
        self._request = request
        self._context = context
        self._rules = context.rules
        self.state = AttemptState(self._rules.attempts)
        self.live: list[Attempt] = []
        self._budgeted = False  # this request holds a place in the retry budget
        self._alarm: Alarm | None = None  # rings for a hedge, or for a retry ...
        self._retries = False  # ... in which case this is True
        self._is_full = False  # other replicas are fit, and all of them are at their limits
        self._cause = Reason.OK  # of the retry that the alarm is for
        # A replica that seems to know no priority: this request's body is sent there without one.
        self.untold: Replica | None = None
        context.budget.requests += 1

    # -- beginning ----------------------------------------------------------------------------

    def begin(self, replica: Replica, *, fresh: bool = False) -> None:
        """Send the request to a replica (`fresh`: over a new connection)."""
        self.go(self.prepare(replica, self._context.scheduler.now()), fresh=fresh)

    def prepare(self, replica: Replica, now: float) -> Attempt:
        """The same in two steps, of which this one takes the lease and does nothing else."""
        return self._enter(replica, now, False)

    def go(self, attempt: Attempt, *, fresh: bool = False) -> None:
        """Send what was prepared, if its request has not ended meanwhile."""
        if attempt not in self.live:
            return
        due = NEVER
        request = self._request
        route = request.route
        if route.inference and route.is_known and not route.light:
            # A retry may hang as the first attempt may. One copy is enough for a request.
            hedges_as = "" if attempt.index and self.state.was_hedged else request.hedges_as
            try:
                due = self._context.hedger.dispatched(
                    request.view,
                    attempt,
                    attempt.at,
                    hedges_as,
                    hedges_as != "",
                    request.streamed,
                    attempt.began,
                )
            except Exception as err:  # without a copy it can be answered all the same
                self._context.crashed(err)
        # A stale connection would be found out by what cannot be sent again.
        request.open(attempt, fresh or not route.is_known)
        # `open` may have ended the attempt, and the request with it.
        if due != NEVER and attempt in self.live:
            self._await_hedge(due, attempt.began)

    def _enter(self, replica: Replica, now: float, hedge: bool, continues: bool = False) -> Attempt:
        """Another attempt: its lease is taken, its prefix is promised."""
        request, context = self._request, self._context
        tokens, held = context.chooser.dispatched(request.view, replica)
        attempt = self.state.begin(
            replica,
            now,
            tokens,
            held,
            request.streamed,
            hedge=hedge,
            continues=continues,
            light=request.route.light,
        )
        request.view.attempts = attempt.index + 1
        attempt.first_due = now + request.first_s
        queue = context.queue
        if queue is not None:
            queue.sent(request, replica, now, is_extra=hedge or continues)
        if request.streamed:
            attempt.is_alone = replica.waiting <= 1
            attempt.overdue_due = now + replica.patience_s(replica.pending_tokens)
        if request.times.is_own:
            attempt.connect_due = now + request.times.connect_s  # its class is in more of a hurry
        self.live.append(attempt)
        request.attach(attempt)
        request.look_by(min(attempt.first_due, min(attempt.overdue_due, attempt.connect_due)))
        return attempt

    def connected(self, attempt: Attempt) -> None:
        """The attempt has its connection, and is being sent."""
        attempt.connect_due = NEVER
        self.state.sent(attempt)
        self._request.unreached_since = NOT_SINCE

    # -- hedging ------------------------------------------------------------------------------

    def _await_hedge(self, due: float, now: float) -> None:
        if due <= now:
            self._hedge()
        else:
            self._set_alarm(due, False)

    def _hedge(self) -> None:
        """Nothing has come so far. Shall another replica be asked as well?"""
        if len(self.live) != 1 or not self._can_send_again():
            return
        request, context = self._request, self._context
        first = self.live[0]
        now = context.scheduler.now()
        # Not `_others`, which copies a list: of a large fleet the hedger looks at a few only.
        pool = context.fleet.serving(request.view.model)
        others = context.hedger.backup(request.view, first, first.at, request.hedges_as, pool, now)
        if others and first.index:
            tried = self._tried()
            others = [replica for replica in others if replica not in tried]
        if not others:
            asks_at = context.hedger.asks_again_at(first, now)
            if asks_at != NEVER:
                self._set_alarm(asks_at, False)
            return
        replica = context.chooser.choose(request.view, others)
        hedge = self._enter(replica, now, True)
        context.hedger.sent(request.view, hedge, replica, now)
        request.open(hedge, False)

    def won(self, attempt: Attempt, now: float) -> bool:
        """An attempt shows content. True: it is the first one to do so, and the others are
        cancelled, at their engines too. False: nothing of it may reach the client."""
        if not self.state.content(attempt):
            return False
        self._quiet()
        attempt.first_due = NEVER
        request, context = self._request, self._context
        if len(self.live) > 1:
            losers = [other for other in self.live if other is not attempt]
            self.live = [attempt]
            computed = [request.computed_tokens(other) for other in losers]
            for other in losers:
                request.drop(other)
            self.state.outrun(now)
            for other, tokens in zip(losers, computed, strict=True):
                self._forget_prefix(other)
                context.hedger.outrun(request.view, other, other.at, request.streamed, tokens, now)
                context.fleet.attempt_ended(other.at, other.began)
        ticket, queue = request.ticket, context.queue
        if ticket is not None and queue is not None:
            queue.pools.shown(ticket, attempt.at, now)
        return True

    def shows(self, attempt: Attempt, ttft_s: float | None, now: float) -> None:
        """The winner's first content teaches what the replica holds, and how long it took.

        `ttft_s`: None where the content is the whole answer.
        """
        request, context, replica = self._request, self._context, attempt.at
        attempt.overdue_due = NEVER
        context.fleet.showed_content(
            replica,
            now,
            attempt.began,
            ttft_s,
            attempt.tokens,
            attempt.is_alone,
            attempt.is_timed,
        )
        if not attempt.is_timed:
            ttft_s = None
        if request.route.is_known:
            context.chooser.shown(request.view, replica, attempt.held, ttft_s)
            context.hedger.shown(request.view, attempt, replica, request.streamed, now)

    def shows_refusal(self, attempt: Attempt, now: float) -> None:
        """The winner answers with an error: nothing was prefilled."""
        attempt.overdue_due = NEVER
        view, replica = self._request.view, attempt.at
        self._context.chooser.withdrawn(view, replica, attempt.held)
        self._context.hedger.failed(view, attempt, replica, now)

    def is_contested(self, attempt: Attempt) -> bool:
        """Whether another attempt may still answer better."""
        return len(self.live) > 1 and attempt in self.live

    def holds_errors(self) -> bool:
        """Whether an error is not for the client at once: another attempt lives, or failed before
        and has the first word."""
        return len(self.live) > 1 or self.state.put_aside is not None

    def put_aside(self, attempt: Attempt, reason: Reason) -> None:
        """An attempt has an error to tell. The earliest one's is told when all have failed."""
        context = self._context
        now = context.scheduler.now()
        self.live.remove(attempt)
        self._forget_prefix(attempt)
        began = attempt.began
        self._blame(attempt, reason, began)
        self.state.aside(attempt, reason, now)
        context.hedger.failed(self._request.view, attempt, attempt.at, now)
        context.fleet.attempt_ended(attempt.at, began)
        if not self.live:
            self._request.tell_aside()

    # -- failing ------------------------------------------------------------------------------

    def refused(self, attempt: Attempt, retry_after: bytes | None) -> None:
        """A replica answers that it is busy: it is spared for a while."""
        self._context.fleet.busy(attempt.at, retry_after, self._context.scheduler.now())

    def replace(self, attempt: Attempt, reason: Reason) -> bool:
        """A replica answers that it is busy or has failed, and no content is out yet.

        True: another one is tried; False: the answer stands and is passed on.
        """
        state, request = self.state, self._request
        if not self._can_send_again() or state.reached >= state.most:
            return False
        aside = state.put_aside
        if aside is not None and aside.reason not in PASSING:
            return False  # an engine has refused the request: that is the answer
        if reason is Reason.STREAM_ERROR and (state.lost or not request.route.repeatable):
            return False
        if not (self._others() or self._is_full) or not self._take_budget():
            return False
        request.discard(attempt)
        self._end_attempt(attempt, reason, reused=False, received=True)
        self._retry(reason)
        return True

    def ask_without_priority(self, attempt: Attempt) -> bool:
        """A replica seems to know no priority. True: this request goes to it once more, without;
        False: its answer stands."""
        replica, request = attempt.at, self._request
        can_send = request.can_resend() and not replica.removed and not self._context.closing
        if self.is_contested(attempt) or not can_send:
            return False
        self.untold = replica
        request.free_connection(attempt)
        self._end_attempt(attempt, Reason.REPLICA_REFUSED, reused=False, received=True)
        self._context.metrics.retries(Reason.REPLICA_REFUSED)
        self.begin(replica)
        return True

    def went_without_priority(self, replica: Replica) -> None:
        """The replica takes the same request without a priority."""
        self.untold = None
        replica.refuses_priority = True
        self._context.metrics.priority_refused += 1
        log_event(
            logging.WARNING,
            "a replica knows no priority",
            key=f"no priority {replica.id}",
            replica=replica.id,
        )

    def failed(self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool) -> None:
        """An attempt ended without a whole response."""
        if attempt not in self.live:
            return
        step = self._end_attempt(attempt, reason, reused=reused, received=received)
        request, context = self._request, self._context
        if step == Step.NOTHING:
            return
        if step == Step.TRUNCATE:
            if not self._continue(attempt, reason):
                winner = self.state.winner
                request.truncate(reason if winner is None else winner.reason)
            return
        if step == Step.ASIDE:
            request.tell_aside()
            return
        can_resend = request.can_resend()
        if step == Step.HERE and can_resend and not attempt.at.removed:
            context.metrics.connections_stale += 1
            context.metrics.retries(reason)
            self.begin(attempt.at, fresh=True)
            return
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET) and self._can_send_again():
            others = self._others()
            may_go_on = len(others) > 0 or self._is_full
            if may_go_on and (step != Step.BUDGET or self._take_budget()):
                if step == Step.BUDGET:
                    self._retry(reason)
                    return
                self._go_on(others, reason)
                return
        if reason in UNSENT and self._wait_again(attempt.at):
            context.metrics.retries(reason)
            return
        is_last = step == Step.ELSEWHERE and self._can_send_again() and not self._others()
        if is_last and self._wait_for_probe(self.state.blame):
            return
        request.answer_failure(self.state.blame)

    def _end_attempt(
        self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool
    ) -> int:
        request, context = self._request, self._context
        replica = attempt.at
        self.live.remove(attempt)
        if not self.live:
            self._quiet()
        shows_nothing = self.state.winner is not attempt
        self._forget_prefix(attempt)
        began = attempt.began
        now = context.scheduler.now()
        self._blame(attempt, reason, began if shows_nothing else request.said_at())
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
            context.hedger.failed(request.view, attempt, replica, now)
        context.fleet.attempt_ended(replica, began)
        return step

    def _forget_prefix(self, attempt: Attempt) -> None:
        """An attempt ends. If it showed nothing, the replica holds nothing of it for sure.

        The end of the one that answered is told with its tokens, when the request is over.
        """
        if self.state.winner is not attempt:
            chooser, view = self._context.chooser, self._request.view
            chooser.withdrawn(view, attempt.at, attempt.held)
            chooser.finished(view, attempt.at, None)

    def _can_send_again(self) -> bool:
        request = self._request
        return (
            request.can_resend()
            and request.pinned is None
            and self.state.commit != Commit.CONTENT
            and not self._context.closing
        )

    def _others(self) -> Sequence[Replica]:
        self._is_full = False
        try:
            return self._request.candidates(self._tried())
        except RouterError as err:
            self._is_full = err.reason is Reason.FLEET_FULL
            return []

    def _tried(self) -> list[Replica]:
        """Where it has failed. One that was preempted has failed nowhere."""
        return [a.at for a in self.state.attempts if a.reason is not Reason.PREEMPTED]

    def _take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self._context.budget.take()
            if not self._budgeted:
                self._context.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def _retry(self, cause: Reason) -> None:
        """Ask another replica, after a pause: what fails for want of room fails in crowds."""
        self._cause = cause
        context = self._context
        pause_s = context.backoff_s(self._rules, len(self.state.attempts))
        if pause_s > 0.0:
            self._pause()
            self._set_alarm(context.scheduler.now() + pause_s, True)
        else:
            self._retry_now()

    def _retry_now(self) -> None:
        self._is_full = False
        if not self._can_send_again():
            self._give_up(self._cause)
            return
        others = self._others()
        if others or self._is_full:
            self._context.first_probes.forget(self._request)
            self._go_on(others, self._cause)
        elif not self._wait_for_probe(self._cause):
            self._give_up(self._cause)

    def _wait_for_probe(self, cause: Reason) -> bool:
        """No replica is left to ask. True: one may be after its first probe, which is awaited."""
        self._cause = cause
        late = partial(self._give_up, cause)
        holds = self._context.first_probes.hold(self._request, self._retry_now, late)
        if holds:
            self._pause()
        return holds

    def _pause(self) -> None:
        """The request is at no replica, and not in the queue, until it is sent again."""
        queue = self._context.queue
        if queue is not None:
            queue.pauses(self._request)

    def _wait_again(self, replica: Replica) -> bool:
        """The last attempt did not reach `replica`, and no other can be reached. True: the request
        waits in the queue for one."""
        request, context = self._request, self._context
        queue = context.queue
        if queue is None or context.closing or not request.can_resend() or not self._is_queued():
            return False
        return queue.wait_again(request, replica)

    def _is_queued(self) -> bool:
        """Whether the request is one of those that wait in a queue where there is one."""
        route = self._request.route
        return route.inference and not route.light

    def _go_on(self, others: Sequence[Replica], cause: Reason) -> None:
        """One of `others` is asked, when it is the request's turn there. `others` is empty where
        all are at their limits."""
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
                self.begin(replica)
        elif others:
            context.metrics.retries(cause)
            self.begin(context.chooser.choose(request.view, others))
        else:
            self._give_up(self.state.blame)

    def _give_up(self, reason: Reason) -> None:
        """No other attempt is made. An error that was put aside is the answer."""
        if not self.tells_aside(reason):
            self._request.answer_failure(reason)

    # -- continuing ---------------------------------------------------------------------------

    def _continue(self, attempt: Attempt, reason: Reason) -> bool:
        """The client's stream broke with this attempt. Another replica may go on, where that is
        switched on."""
        request, context = self._request, self._context
        if not request.is_continued() or context.closing:
            return False
        has_begun = attempt is self.state.winner  # else it is a continuation that failed
        if reason not in _BREAKS:
            if not has_begun:
                context.metrics.continuation(Outcome.FAILED)
            return False
        others = [replica for replica in self._others() if replica.descriptor.continues]
        rest = self._rest(bool(others))
        if isinstance(rest, Outcome):
            context.metrics.continuation(rest if has_begun else Outcome.FAILED)
            return False
        now = context.scheduler.now()
        replica = context.chooser.choose(request.view, others)
        following = self._enter(replica, now, False, True)
        following.rest = rest
        request.awaits_rest(now)
        request.open(following, True)
        return True

    def _rest(self, has_others: bool) -> list[bytes] | Outcome:
        """What to ask another replica; or why none is asked."""
        state = self.state
        # A request that kills replicas must not tour the fleet: two, never three.
        if state.continuations >= self._rules.continuations or state.lost > 1:
            return Outcome.BUDGET
        rest = self._request.rest()
        if isinstance(rest, Outcome):
            return rest
        if not has_others:
            return Outcome.NO_REPLICA
        return rest if self._take_budget() else Outcome.BUDGET

    # -- deadlines ----------------------------------------------------------------------------

    def due(self) -> float:
        """When an attempt has to be looked at next."""
        due = NEVER
        for attempt in self.live:
            due = min(due, min(attempt.first_due, min(attempt.overdue_due, attempt.connect_due)))
        return due

    def _blame(self, attempt: Attempt, reason: Reason, shown: float) -> None:
        """An attempt ended badly; `shown`: when it last showed content, or was dispatched."""
        request = self._request
        request.see_work(attempt)
        self._context.fleet.failed(
            attempt.at,
            reason,
            attempt.began,
            shown,
            was_overdue=attempt.is_overdue,
            request_id=request.request_id,
        )

    def look(self, now: float) -> None:
        """See whether an attempt's first token is overdue or too late, or its connection too late
        for its class. What ends is that attempt: another one has its own time."""
        request = self._request
        for attempt in [*self.live]:
            if attempt not in self.live:
                continue  # the end of another attempt has ended the request
            if attempt.overdue_due <= now:
                request.see_work(attempt)
                attempt.overdue_due = self._context.fleet.overdue(
                    attempt.at, attempt.began, now, request.request_id
                )
                attempt.is_overdue = attempt.overdue_due == NEVER
            if attempt.connect_due <= now:
                attempt.connect_due = NEVER
                request.drop(attempt)
                self.failed(attempt, Reason.CONNECT_TIMEOUT, reused=False, received=False)
            elif attempt.first_due <= now:
                attempt.first_due = NEVER
                request.drop(attempt)
                self.failed(attempt, self._late(), reused=False, received=True)

    def _late(self) -> Reason:
        """Why an attempt fails whose first content is not there in time."""
        if self.state.commit == Commit.CONTENT:
            return Reason.TOKEN_GAP_TIMEOUT  # it was to go on with a stream
        return Reason.WHOLE_TIMEOUT if self._request.is_whole else Reason.TTFT_TIMEOUT

    def excuse(self) -> None:
        """The client does not read, so nothing is read from the replicas: no first content is
        awaited, none is overdue, and what it takes teaches nothing."""
        for attempt in self.live:
            attempt.is_timed = False
            attempt.first_due = NEVER
            attempt.overdue_due = NEVER

    def await_first(self, soonest: float) -> None:
        """It is awaited again, at `soonest` or when it would have been due, if that is later. It is
        overdue once it has been read for so long again as the replica is given."""
        request, now = self._request, self._context.scheduler.now()
        for attempt in self.live:
            if attempt is not self.state.winner:
                attempt.first_due = max(soonest, attempt.began + request.first_s)
                if request.streamed and not attempt.is_overdue:
                    replica = attempt.at
                    attempt.overdue_due = now + replica.patience_s(replica.pending_tokens)

    def timed_out(self, reason: Reason) -> None:
        """The request, or the stream that is relayed, has taken too long."""
        live = [*self.live]
        for attempt in live:
            self._request.drop(attempt)
        for attempt in live:
            self.failed(attempt, reason, reused=False, received=True)
        if not live:
            self._quiet()
            self._give_up(reason)

    def _set_alarm(self, when: float, retries: bool) -> None:
        self._retries = retries
        alarm = self._alarm
        if alarm is None:
            alarm = self._alarm = self._context.scheduler.alarm(self._ring)
        alarm.set(when)

    def _ring(self) -> None:
        request = self._request
        try:
            if self._retries:
                self._retry_now()
            else:
                self._hedge()
        except Exception as err:
            request.crashed(err)

    def _quiet(self) -> None:
        """No hedge and no retry any more."""
        if self._alarm is not None:
            self._alarm.clear()

    # -- the end ------------------------------------------------------------------------------

    def completed(self, attempt: Attempt, reason: Reason, now: float) -> None:
        """The winner's response is whole: its connection may serve another."""
        self.state.completed(attempt, now, reason)
        self.live.clear()
        self._request.free_connection(attempt)
        self._context.fleet.attempt_ended(attempt.at, attempt.began)

    def cancel(self, reason: Reason) -> None:
        """The request is over, whatever its attempts were about to do."""
        self._quiet()
        live, self.live = self.live, []
        for attempt in live:
            self._request.drop(attempt)
        context = self._context
        now = context.scheduler.now()
        winner = self.state.winner
        self.state.end(reason, now)  # releases the leases, before anything that may fail
        for attempt in live:
            self._forget_prefix(attempt)
            if attempt is not winner:
                context.hedger.failed(self._request.view, attempt, attempt.at, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)

    def tells_aside(self, reason: Reason) -> bool:
        """The request is to end with an error of the router's own. True: it has ended with the one
        that an attempt has put aside, which comes first."""
        if self.state.put_aside is None or self.state.over:
            return False
        self.cancel(reason)
        self._request.tell_aside()
        return True

    def recall(self, now: float) -> None:
        """The request gives way to a more urgent one: what is under way ends, and has shown
        nothing. It may begin again, but not where it has failed before."""
        self._quiet()
        context = self._context
        context.first_probes.forget(self._request)  # from now on it waits in the queue
        live, self.live = self.live, []
        for attempt in live:
            self._request.drop(attempt)
        self.state.recalled(now)
        for attempt in live:
            self._forget_prefix(attempt)
            context.hedger.failed(self._request.view, attempt, attempt.at, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)
        ticket = self._request.ticket
        if ticket is not None:
            ticket.excluded = tuple(self._tried())

    def close(self) -> None:
        """Give back what is not an attempt's."""
        self._quiet()
        self._alarm = None
        context = self._context
        if self._budgeted:
            self._budgeted = False
            context.budget.give()
        context.budget.requests -= 1
        if context.first_probes:
            context.first_probes.forget(self._request)
        # These refer to each other; no garbage collector shall be needed.
        for attempt in self.state.attempts:
            attempt.io = None
        del self._request
