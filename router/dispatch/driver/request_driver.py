"""Drives the attempts of one request: begins them, handles failures, and runs hedges.

The state machine (`attempt_state.AttemptState`) returns the next step after an event; the driver
executes that step. The base class (`running_attempts.py`) begins and ends single attempts, and
reports their events. Most requests have one attempt. There are four reasons for another attempt:

- A retry follows a failed attempt. If that attempt failed for lack of capacity, the driver waits
  before the retry.
- A hedge runs in parallel to another attempt, if the hedger asks for it. The first attempt that
  shows content wins. All other attempts are cancelled in the same call.
- A continuation asks another replica for the rest of a stream that broke.
- If a request cannot be served, it goes to the next fallback of its model (`fallbacks.py`).

A stream that has begun may also be copied once, to fill the prefix cache of another replica
(`warm_copy.py`).

The proxy and the simulator both run this driver. The proxy's requests send bytes; the simulator's
requests run on engine cores (`driven_request.py`).

Must never: use bytes or sockets, choose a replica, depend on whether the time is real or simulated,
or leave a lease or a timer behind. Every request ends in `cancel` or with its last attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from policies.queueing.ticket import SENT
from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm
from router.dispatch.context import Context
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.driver.arrival_estimate import sent_at_once
from router.dispatch.driver.attempt_state import Attempt, Commit, Step
from router.dispatch.driver.driven_request import DrivenRequest
from router.dispatch.driver.fallbacks import CONDITIONS, next_fallback
from router.dispatch.driver.retry import PASSING, UNSENT
from router.dispatch.driver.running_attempts import RunningAttempts
from router.dispatch.driver.warm_copy import WarmCopy
from router.dispatch.queueing.queued_request import NOT_SINCE
from router.fleet.replica import Replica
from router.wire.sweep import NEVER

# A stream that broke for one of these reasons, or a continuation that failed for one of them, may
# be continued by another replica.
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


class RequestDriver(RunningAttempts):
    """Drives the attempts of one request. Times are monotonic seconds."""

    __slots__ = ("_alarm", "_budgeted", "_cause", "_is_full", "_retries", "copy")

    def __init__(self, request: DrivenRequest, context: Context) -> None:
        super().__init__(request, context)
        self._budgeted = False  # Whether a retry of the request counts in the retry budget.
        self._alarm: Alarm | None = None  # Timer for a hedge, a retry, or a warm-up copy.
        self._retries = False  # The alarm is for a retry, not for a hedge.
        self._is_full = False  # Other fit replicas exist, but all of them are at their limits.
        self._cause = Reason.OK  # The reason of the pending retry.
        # The copy that fills the prefix cache of another replica; `None`: none was sent.
        self.copy: WarmCopy | None = None
        context.budget.requests += 1

    # -- beginning ----------------------------------------------------------------------------

    def start(self, replica: Replica) -> None:
        """Send the first attempt of a request to a replica.

        The request is refused instead if its first token would come too late, and if its class is
        configured to refuse late requests.
        """
        request, context = self._request, self._context
        view, route = request.view, request.route
        if view.stream and route.inference and not route.light:
            now = context.scheduler.now()
            account = request.flow_identity().account
            chooser, estimates = context.chooser, context.estimates
            estimate = sent_at_once(view, account, replica, chooser, estimates, now)
            request.estimate = estimate
            if estimate is not None and self._rules.refuses_late[request.urgency.rank]:
                due = request.first_token_due()
                if estimate.is_late(due, now):
                    estimate.void()
                    if context.queue is not None:
                        context.queue.refused_late(request)
                    request.answer(estimate.late_error(due))
                    return
        self.begin(replica)

    def begin(self, replica: Replica, *, fresh: bool = False) -> None:
        """Send the request to a replica. `fresh`: use a new connection."""
        self.go(self.prepare(replica, self._context.scheduler.now()), fresh=fresh)

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
        # A request on an unknown route cannot be repeated, so it is sent over a new connection,
        # which cannot be stale.
        request.open(attempt, fresh or not route.is_known)
        # The call of `open` may have ended the attempt and its request.
        if due != NEVER and attempt in self.live:
            self._await_hedge(due, attempt.began)

    def may_send(self, attempt: Attempt) -> bool:
        """Whether the request may be sent over the connection that the attempt just got.

        A reload may have changed the regions of the key or of the replica while the attempt waited
        for its connection. Then the result is False, the attempt has ended, and the request
        continues elsewhere or has ended, too.
        """
        if self.may_use(attempt.at):
            return True
        self.failed(attempt, Reason.REGION_NOT_ALLOWED, reused=False, received=False)
        return False

    # -- hedging ------------------------------------------------------------------------------

    def _await_hedge(self, due: float, now: float) -> None:
        if due <= now:
            self._hedge()
        else:
            self._set_alarm(due, False)

    def _hedge(self) -> None:
        """Send a hedge if no content has come and the hedger allows one."""
        if len(self.live) != 1 or not self._can_send_again():
            return
        request, context = self._request, self._context
        first = self.live[0]
        now = context.scheduler.now()
        # The list of all replicas of the model is not copied; in a large fleet the hedger checks
        # only a few of them.
        view = request.view
        request.limit_context()
        pool = context.fleet.serving(view.model, view.allowed)
        request.see_work_of(pool)
        others = context.hedger.backup(view, first, pool, now)
        if others and first.index:
            tried = self._tried()
            others = [replica for replica in others if replica not in tried]
        if not others:
            asks_at = context.hedger.asks_again_at(first, now)
            if asks_at != NEVER:
                self._set_alarm(asks_at, False)
            return
        replica = context.chooser.choose(view, others)
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
        self._clear_alarm()
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
                self._ended_unshown(other, now)
                context.hedger.outrun(request.view, other, tokens, now)
                context.fleet.attempt_ended(other.at, other.began)
        ticket, queue = request.ticket, context.queue
        if ticket is not None and queue is not None:
            sample = attempt.speed_sample
            prefill_s = 0.0 if sample is None else sample.ttft_s
            queue.pools.shown(ticket, attempt.at, now, prefill_s)
        return True

    # -- warm-up ------------------------------------------------------------------------------

    def shows(self, attempt: Attempt, ttft_s: float | None, now: float) -> None:
        warm_up = self._context.hedger.warm_up
        # The prefix must be examined before `shows` confirms it in the index.
        is_examined = (
            warm_up is not None
            and self._request.may_be_copied
            and warm_up.examines(self._request.view, attempt, now)
        )
        super().shows(attempt, ttft_s, now)
        if is_examined:
            # The copy is sent by the alarm, after the first content was sent to the client.
            self._set_alarm(now, False)

    def _warm_up(self) -> None:
        """Send a copy of a stream that has begun, if a cold replica lacks its prefix."""
        request, context, winner = self._request, self._context, self.state.winner
        warm_up = context.hedger.warm_up
        if warm_up is None or winner is None or winner not in self.live or self.copy is not None:
            return
        if context.closing or not request.can_resend() or request.pinned is not None:
            return
        now = context.scheduler.now()
        view = request.view
        pool = context.fleet.serving(view.model, view.allowed)
        request.see_work_of(pool)
        plan = warm_up.plan(view, winner, pool, now)
        if plan is not None:
            self.copy = copy = WarmCopy(request, context, warm_up, plan, now)
            try:
                copy.begin()
            except Exception as err:  # The request itself goes on.
                context.log_defect(err)
                copy.cancel(now)

    def copy_shown(self, attempt: Attempt, now: float) -> None:
        """Handle the first token of the warm-up copy."""
        copy = self.copy
        if copy is not None and copy.attempt is attempt:
            copy.shown(now)

    def keep_error(self, attempt: Attempt, reason: Reason) -> None:
        """End an attempt that has returned an error, and keep the error.

        When all attempts have failed, the error of the earliest one is sent to the client.
        """
        context = self._context
        now = context.scheduler.now()
        self.live.remove(attempt)
        self._ended_unshown(attempt, now)
        began = attempt.began
        self._blame(attempt, reason, began)
        self.state.keep_error(attempt, reason, now)
        context.hedger.failed(self._request.view, attempt, now)
        context.fleet.attempt_ended(attempt.at, began)
        if not self.live:
            self._send_kept_error()

    def _send_kept_error(self) -> None:
        """Send the client the error answer that was kept, unless the request has a fallback."""
        kept = self.state.kept_error
        assert kept is not None
        if not self.falls_back(kept.reason):
            self._request.send_kept_error()

    # -- fallbacks ----------------------------------------------------------------------------

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
        if request.named is None or fleet.awaits_probe:
            return False
        if fleet.serving(request.view.model, request.view.allowed):
            return False
        return self.falls_back(Reason.NO_REPLICA)

    def leaves(self, attempt: Attempt, reason: Reason) -> bool:
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
        self._clear_alarm()
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
        request.goes_to(target, context.fleet.routed_target(target))
        context.metrics.fallback(CONDITIONS[reason])
        request.place()
        return True

    # -- failing ------------------------------------------------------------------------------

    def replace(self, attempt: Attempt, reason: Reason) -> bool:
        """Try another replica or a fallback after a busy or error answer, if no content was sent.

        Returns False if the answer must be sent to the client.
        """
        return self._retries_elsewhere(attempt, reason) or self.leaves(attempt, reason)

    def _retries_elsewhere(self, attempt: Attempt, reason: Reason) -> bool:
        state, request = self.state, self._request
        if not self._can_send_again() or state.reached >= state.most:
            return False
        kept = state.kept_error
        if kept is not None and kept.reason not in PASSING:
            return False  # The client gets the kept error of an earlier attempt instead.
        if reason is Reason.STREAM_ERROR and (state.lost or not request.route.repeatable):
            return False
        if not (self._others() or self._is_full) or not self._take_budget():
            return False
        request.discard(attempt)
        self._end_attempt(attempt, reason, reused=False, received=True)
        self._retry(reason)
        return True

    def ask_without_priority(self, attempt: Attempt) -> bool:
        """Send the request again without `priority` to a replica that seems to reject the field.

        Returns False if the replica's answer must be sent to the client.
        """
        replica, request = attempt.at, self._request
        can_send = request.can_resend() and not replica.removed and not self._context.closing
        if self.is_contested(attempt) or not can_send or not self.may_use(replica):
            return False
        self.priority_rejected_by = replica
        request.free_connection(attempt)
        self._end_attempt(attempt, Reason.REPLICA_REFUSED, reused=False, received=True)
        self._context.metrics.retries(Reason.REPLICA_REFUSED)
        self.begin(replica)
        return True

    def failed(self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool) -> None:
        """Handle the end of an attempt that gave no complete response."""
        if attempt not in self.live:
            copy = self.copy
            if copy is not None and copy.attempt is attempt:
                copy.failed(reason, self._context.scheduler.now())
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
        if step == Step.KEPT_ERROR:
            self._send_kept_error()
            return
        can_resend = request.can_resend()
        is_here = step == Step.HERE and not attempt.at.removed and self.may_use(attempt.at)
        if is_here and can_resend:
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
        if self.falls_back(self.state.blame):
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
            self._clear_alarm()
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
        self._request.limit_context()
        try:
            return self._request.candidates(self._tried())
        except RouterError as err:
            self._is_full = err.reason is Reason.FLEET_FULL
            return []

    def _take_budget(self) -> bool:
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
        """Wait for the first probe of a new replica, because no other replica is left.

        Returns False if no first probe is pending, or if the probe cannot change the error.
        """
        self._cause = cause
        late = partial(self._give_up, cause)
        holds = self._context.first_probes.hold(self._request, self._retry_now, late)
        if holds:
            self._pause()
        return holds

    def _pause(self) -> None:
        """Report to the queue that the request is at no replica until it is sent again."""
        queue = self._context.queue
        if queue is not None:
            queue.pauses(self._request)

    def _wait_again(self, replica: Replica) -> bool:
        """Queue the request again, because no replica accepts connections; `replica` failed last.

        Returns False if the request cannot wait.
        """
        request, context = self._request, self._context
        queue = context.queue
        if queue is None or context.closing or not request.can_resend() or not self._is_queued():
            return False
        return queue.wait_again(request, replica)

    def _is_queued(self) -> bool:
        """Whether requests of this kind use the admission queue, if it is enabled."""
        route = self._request.route
        return route.inference and not route.light

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
                self.begin(replica)
        elif others:
            context.metrics.retries(cause)
            self.begin(context.chooser.choose(request.view, others))
        else:
            self._give_up(self.state.blame)

    def _give_up(self, reason: Reason) -> None:
        """End the request without another attempt.

        If the error answer of an attempt was kept, the client gets it.
        """
        if not self.falls_back(reason) and not self.sends_kept_error(reason):
            self._request.answer_failure(reason)

    # -- continuing ---------------------------------------------------------------------------

    def _continue(self, attempt: Attempt, reason: Reason) -> bool:
        """Ask another replica to continue a broken stream, if continuations are enabled.

        Returns False if no replica is asked.
        """
        request, context = self._request, self._context
        if not request.is_continued() or context.closing:
            return False
        # If the failed attempt is not the winner, the attempt was a continuation that failed.
        has_begun = attempt is self.state.winner
        if reason not in _BREAKS:
            if not has_begun:
                context.metrics.continuation(Outcome.FAILED)
            return False
        others = [replica for replica in self._others() if replica.descriptor.continues]
        rest = self._rest(bool(others))
        if isinstance(rest, Outcome):
            context.metrics.continuation(rest if has_begun else Outcome.FAILED)
            return False
        self._begin_rest(others, rest, context.scheduler.now())
        return True

    def _begin_rest(self, others: Sequence[Replica], rest: list[bytes], now: float) -> None:
        """Send the body `rest` to one of `others`, which generates the rest of the stream."""
        request = self._request
        replica = self._context.chooser.choose(request.view, others)
        following = self._enter(replica, now, False, True)
        following.rest = rest
        request.awaits_rest(now)
        request.open(following, True)

    # -- leaving a replica that goes away -----------------------------------------------------

    def leave(self, attempt: Attempt, now: float) -> bool:
        """Move the request away from the replica of an attempt, because that replica will go away.

        Another replica continues a stream; a request without content is sent again. A move is not a
        failure, so it needs no retry budget. Returns False if the request stays at the replica,
        because it may not be moved, because no other replica takes it now, or because another
        attempt of the request is running.
        """
        if len(self.live) != 1 or self._context.closing:
            return False
        if self.state.winner is attempt:
            return self._continue_elsewhere(attempt, now)
        request, context = self._request, self._context
        is_repeatable = request.route.repeatable and self.state.kept_error is None
        if not is_repeatable or not self._can_send_again():
            return False
        others = self._others()
        queue = context.queue
        if queue is not None and self._is_queued():
            # If all other replicas are at their limits, the request can wait in the queue.
            may_move = len(others) > 0 or self._is_full
            return may_move and queue.withdraw(
                request, attempt.at, others, self._tried(attempt), now
            )
        if not others:
            return False
        self.recall(now)
        self.begin(context.chooser.choose(request.view, others))
        return True

    def _continue_elsewhere(self, attempt: Attempt, now: float) -> bool:
        request = self._request
        if not request.is_continued() or self.state.continuations >= self._rules.continuations:
            return False
        others = [replica for replica in self._others() if replica.descriptor.continues]
        if not others:
            return False
        rest = request.rest()
        if isinstance(rest, Outcome):
            return False
        request.drop(attempt)
        self._end_attempt(attempt, Reason.PREEMPTED, reused=False, received=True)
        self._begin_rest(others, rest, now)
        return True

    def _rest(self, has_others: bool) -> list[bytes] | Outcome:
        """Return the body of the request for the rest of the stream, or why no replica is asked."""
        state = self.state
        # The request itself may crash replicas, so it must not reach more than two.
        if state.continuations >= self._rules.continuations or state.lost > 1:
            return Outcome.BUDGET
        rest = self._request.rest()
        if isinstance(rest, Outcome):
            return rest
        if not has_others:
            return Outcome.NO_REPLICA
        return rest if self._take_budget() else Outcome.BUDGET

    # -- deadlines ----------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Check deadlines: overdue first tokens, first content timeouts, and connect timeouts of
        classes.

        A timeout ends only its own attempt; each attempt has its own deadlines.
        """
        request = self._request
        for attempt in [*self.live]:
            if attempt not in self.live:
                continue  # The end of another attempt has also ended this attempt.
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
        copy = self.copy
        if copy is not None and copy.attempt.first_due <= now:
            copy.late(now)

    def due(self) -> float:
        due = super().due()
        copy = self.copy
        return due if copy is None else min(due, copy.attempt.first_due)

    def _late(self) -> Reason:
        """Return the reason for an attempt whose first content did not come in time."""
        if self.state.commit == Commit.CONTENT:
            return Reason.TOKEN_GAP_TIMEOUT  # The attempt was a continuation of a stream.
        return Reason.WHOLE_TIMEOUT if self._request.waits_for_whole else Reason.TTFT_TIMEOUT

    def timed_out(self, reason: Reason) -> None:
        """Handle a timeout of the whole request or of the relayed stream."""
        live = [*self.live]
        for attempt in live:
            self._request.drop(attempt)
        for attempt in live:
            self.failed(attempt, reason, reused=False, received=True)
        if not live:
            self._clear_alarm()
            self._give_up(reason)

    def _set_alarm(self, when: float, retries: bool) -> None:
        self._retries = retries
        alarm = self._alarm
        if alarm is None:
            alarm = self._alarm = self._context.scheduler.alarm(self._on_alarm)
        alarm.set(when)

    def _on_alarm(self) -> None:
        request = self._request
        try:
            if self._retries:
                self._retry_now()
            elif self.state.commit == Commit.CONTENT:
                self._warm_up()
            else:
                self._hedge()
        except Exception as err:
            request.crashed(err)

    def _clear_alarm(self) -> None:
        """Cancel the timer of a pending hedge, retry, or warm-up copy."""
        if self._alarm is not None:
            self._alarm.clear()

    # -- the end ------------------------------------------------------------------------------

    def cancel(self, reason: Reason) -> None:
        """End all attempts and timers; the request is over."""
        self._clear_alarm()
        live, self.live = self.live, []
        for attempt in live:
            self._request.drop(attempt)
        context = self._context
        now = context.scheduler.now()
        winner = self.state.winner
        self.state.end(reason, now)  # Releases the leases before any code that may fail.
        for attempt in live:
            self._ended_unshown(attempt, now)
            if attempt is not winner:
                context.hedger.failed(self._request.view, attempt, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)

    def sends_kept_error(self, reason: Reason) -> bool:
        """Send a kept error answer of an attempt instead of the router's own error.

        Returns True if an error answer was kept; the request has then ended.
        """
        if self.state.kept_error is None or self.state.over:
            return False
        self.cancel(reason)
        self._request.send_kept_error()
        return True

    def recall(self, now: float) -> None:
        """Preempt the request: end its running attempts, which have shown no content.

        The request may be sent again, but not to a replica where it failed before. A ticket that
        was offered to the queue instead of the attempts has these replicas already.
        """
        self._clear_alarm()
        context = self._context
        context.first_probes.forget(self._request)  # From now on, the request waits in the queue.
        live, self.live = self.live, []
        for attempt in live:
            self._request.drop(attempt)
        self.state.recalled(now)
        for attempt in live:
            self._ended_unshown(attempt, now)
            context.hedger.failed(self._request.view, attempt, now)
            context.fleet.attempt_ended(attempt.at, attempt.began)
        ticket = self._request.ticket
        if ticket is not None and ticket.state == SENT:
            ticket.excluded = tuple(self._tried())

    def close(self) -> None:
        """Release everything that belongs to the request and not to an attempt."""
        self._clear_alarm()
        self._alarm = None
        context = self._context
        copy = self.copy
        if copy is not None:
            copy.cancel(context.scheduler.now())
            copy.attempt.io = None
            self.copy = None
        if self._budgeted:
            self._budgeted = False
            context.budget.give()
        context.budget.requests -= 1
        if context.first_probes:
            context.first_probes.forget(self._request)
        # Break reference cycles, so that no garbage collection is needed.
        for attempt in self.state.attempts:
            attempt.io = None
        del self._request
