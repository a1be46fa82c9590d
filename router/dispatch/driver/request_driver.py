"""Drives the attempts of one request: begins and ends them, and decides what follows each event.

The state machine (`attempt_state.AttemptState`) returns the next step after a failure; the driver
executes that step. Most requests have one attempt. There are four reasons for another attempt:

- A retry follows a failed attempt. A retry for lack of capacity begins after a pause. Other retries
  begin at once. If no replica accepts the request now, it waits in the queue, or for the first
  probe of a new replica (`first_probes.py`).
- A hedge runs in parallel to another attempt, if the hedger asks for it, at most once per request.
  The first attempt that shows content wins. All other attempts are cancelled in the same call.
- Another replica is asked for the rest of a stream that broke (`resumption.py`).
- If a request cannot be served, it goes to the next fallback of its model (`fallbacks.py`).

A request that is preempted, or whose replica is reclaimed, is also sent again (`recall`, `leave`).
`reports.py` reports each event of an attempt to the parts that learn from it.

The proxy and the simulator both run this driver. The proxy's requests send bytes; the simulator's
requests run on engine cores (`request.py`).

Must never: use bytes or sockets, choose a replica, exceed the retry budget, depend on whether the
time is real or simulated, or leave a lease or a timer behind. Every request ends in `cancel` or
with its last attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from policies.queueing.ticket import SENT
from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm
from router.dispatch.context import Context
from router.dispatch.driver.arrival_estimate import sent_at_once
from router.dispatch.driver.attempt_state import Attempt, Commit, Step
from router.dispatch.driver.deadlines import NOT_SINCE, Passed
from router.dispatch.driver.fallbacks import CONDITIONS, next_fallback
from router.dispatch.driver.first_probes import HELPED
from router.dispatch.driver.reports import blame, contradicted, ended_unshown
from router.dispatch.driver.request import Request
from router.dispatch.driver.retry import LOST, PASSING, UNSENT
from router.dispatch.driver.speed_samples import sample_dispatched
from router.dispatch.messages import MESSAGES
from router.fleet.error_answers import ErrorKind, kind_of
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.wire.sweep import NEVER

# An attempt at a silent replica is examined again after this part of `health.suspect_min_s`.
_AGAIN: Final = 0.2
_NOTICE_S: Final = 0.1  # Seconds in which the death of an engine is mostly noticed.


class RequestDriver:
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
        self.context = context
        self.state = request.deadlines.state
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

    def place(self) -> None:
        """Send the request to its first replica or to the queue, or answer it with an error.

        Called again if the request goes to a fallback. The first rule that applies decides:

        1. A request that refers to a stored response goes to the replica of that response.
        2. A request that uses no GPU goes to the least loaded replica of the nearest region.
        3. An inference request goes to the queue, if the queue is enabled.
        4. For any other request, the routing policy of its model chooses the replica.

        A request that no known replica can take may wait for the first probe of a new replica.
        """
        request, context = self.request, self.context
        route = request.route
        while True:
            if route.decodes:
                self._limit_context()
            if request.named is None or not self._skips_absent_model():
                break
        queue, now = context.queue, context.scheduler.now()
        replica: Replica | None
        try:
            owner = request.owner()
            if owner is not None and (queue is None or not route.inference):
                replica = owner
            elif route.light:
                # The request never waits, even if all replicas are at their limits.
                fit = context.chooser.nearby(request.view, self._fit(), now)
                replica = min(fit, key=_load)
            elif queue is not None and route.inference:
                replica = queue.enter(request, owner, now)
            else:
                replica = context.chooser.choose(request.view, request.candidates(()), now)
        except RouterError as err:
            retry, late = self.place, partial(request.answer, err)
            if err.reason not in HELPED or not context.first_probes.hold(request, retry, late):
                request.answer(err)
            return
        if context.first_probes:
            context.first_probes.forget(request)
        if replica is not None:  # `None`: the queue sends the request later.
            self.start(replica, now)

    def _fit(self) -> Sequence[Replica]:
        """Return the fit replicas, also those at their limits. Raises RouterError if there is
        none."""
        request, fleet = self.request, self.context.fleet
        view = request.view
        if request.judges_body():
            fleet.eligibility.check(view.model, view.allowed)
        # The call of `candidates` raises RouterError with the reason why no replica is fit.
        return fleet.serving.of(view.model, view.allowed) or request.candidates(())

    def start(self, replica: Replica, now: float) -> None:
        """Send the first attempt of a request to a replica.

        The request is refused instead if its first token would come too late, and if its class is
        configured to refuse late requests.
        """
        request, context = self.request, self.context
        view, route = request.view, request.route
        if view.stream and route.inference and not route.light:
            account = request.flow.account
            chooser, estimates = context.chooser, context.estimates
            estimate = sent_at_once(view, account, replica, chooser, estimates, now)
            request.estimate = estimate
            if estimate is not None and request.rules.refuses_late[request.urgency.rank]:
                # The end of the TTFT SLO, or the client's own deadline if that is earlier.
                due = min(view.arrived + view.ttft_slo_s, request.deadlines.wanted_until)
                if estimate.is_late(due, now):
                    estimate.void()
                    if context.queue is not None:
                        context.queue.refused_late(request)
                    request.answer(estimate.late_error(due))
                    return
        self.begin(replica, now)

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
                self._set_alarm(due, self._hedge)

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

    def may_send(self, attempt: Attempt) -> bool:
        """Whether the request may be sent over the connection that the attempt just got.

        While the attempt waited for its connection, a reload may have changed the regions of the
        key or of the replica, or the request may have become suspect. Then the result is False, the
        attempt has ended, and the request continues elsewhere or has ended, too.
        """
        reason = Reason.REGION_NOT_ALLOWED
        if self.may_use(attempt.at):
            if not self.is_suspect(self.context.scheduler.now()):
                return True
            reason = Reason.SUSPECT_REQUEST
        self.failed(attempt, reason, reused=False, received=False)
        return False

    def is_suspect(self, now: float) -> bool:
        """Whether the same body was in flight when two engines died."""
        suspects = self.context.fleet.suspects
        return not suspects.is_empty and suspects.refuses(self.request.digest(), now)

    def connected(self, attempt: Attempt) -> None:
        """Mark the attempt as sent, because it has a connection."""
        self.request.deadlines.connected(attempt)
        self.state.sent(attempt)
        self.request.unreached_since = NOT_SINCE

    def _can_send_again(self) -> bool:
        """Whether the request may be sent to another replica, too."""
        request = self.request
        return (
            request.body is not None
            and request.pinned is None
            and self.state.commit != Commit.CONTENT
            and not self.context.closing
        )

    def went_without_priority(self, replica: Replica) -> None:
        """Stop sending priorities to a replica that accepted the same request without one."""
        self.priority_rejected_by = None
        replica.refuses_priority = True
        self.context.metrics.priority_refused += 1
        log_event(
            logging.WARNING,
            "replica rejects priorities",
            key=f"no priority {replica.id}",
            replica=replica.id,
        )

    # -- hedges, and the first content -----------------------------------------------------------

    def _hedge(self) -> None:
        """Send a hedge if no content has come and the hedger allows one."""
        if len(self.state.live) != 1 or not self._can_send_again():
            return
        if self.state.kept_error is not None:
            return  # The attempt only compares answers; the request may be the cause of the error.
        request, context = self.request, self.context
        first = self.state.live[0]
        now = context.scheduler.now()
        # The list of all replicas of the model is not copied; in a large fleet the hedger checks
        # only a few of them.
        view = request.view
        self._limit_context()
        pool = context.fleet.serving.of(view.model, view.allowed)
        request.see_work_of(pool)
        others = context.hedger.backup(view, first, pool, now)
        if others and first.index:
            tried = self.state.tried()
            others = [replica for replica in others if replica not in tried]
        if not others:
            asks_at = context.hedger.asks_again_at()
            if asks_at != NEVER:
                self._set_alarm(asks_at, self._hedge)
            return
        replica = context.chooser.choose(view, others, now)
        hedge = self.prepare(replica, now, hedge=True)
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
        return True

    # -- failing ---------------------------------------------------------------------------------

    def failed(self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool) -> None:
        """Handle the end of an attempt that gave no complete response."""
        if attempt not in self.state.live:
            return
        step = self._end_attempt(attempt, reason, reused=reused, received=received)
        request, context = self.request, self.context
        if step == Step.NOTHING:
            return
        if step == Step.TRUNCATE:
            if not self._resume(attempt, reason, context.scheduler.now()):
                winner = self.state.winner
                request.truncate(reason if winner is None else winner.reason)
            return
        if step == Step.KEPT_ERROR:
            self._send_kept_error()
            return
        can_resend = request.body is not None
        is_here = step == Step.HERE and not attempt.at.removed and self.may_use(attempt.at)
        if is_here and can_resend:
            context.metrics.connections_stale += 1
            context.metrics.retries(reason)
            self.begin(attempt.at, context.scheduler.now(), fresh=True)
            return
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET) and self._can_send_again():
            others = self.others()
            if others is not None and (step != Step.BUDGET or self.take_budget()):
                if step == Step.BUDGET:
                    self._retry(reason)
                else:
                    self._go_on(others, reason)
                return
        if self.falls_back(self.state.blame):
            return
        is_safe = self.state.lost < 2  # Otherwise the request may crash replicas.
        if reason in UNSENT and is_safe and self._wait_again(attempt.at):
            context.metrics.retries(reason)
            return
        is_last = step == Step.ELSEWHERE and self._can_send_again() and not self.others()
        if is_last and self._wait_for_probe(self.state.blame):
            return
        if self.state.blame in LOST and self._may_become_suspect():
            self._answer_later(self.state.blame)
            return
        self.answer_failure(self.state.blame)

    def _may_become_suspect(self) -> bool:
        context = self.context
        digest, now = self.request.digest(), context.scheduler.now()
        return context.fleet.suspects.may_become(digest, now)

    def replace(self, attempt: Attempt, reason: Reason) -> bool:
        """Try another replica or a fallback after an answer in `PASSING`, if no content was sent.

        Returns False if the answer must be sent to the client.
        """
        return self._retries_elsewhere(attempt, reason) or self.falls_back_from(attempt, reason)

    def _retries_elsewhere(self, attempt: Attempt, reason: Reason) -> bool:
        state, request = self.state, self.request
        if not self._can_send_again() or state.reached >= state.most:
            return False
        kept = state.kept_error
        if kept is not None and kept.reason not in PASSING:
            return False  # The client gets the kept error of an earlier attempt instead.
        if reason is Reason.STREAM_ERROR and (state.lost or not request.route.repeatable):
            return False
        others = self.others()
        is_refused = reason is Reason.MODEL_REFUSED
        is_free = is_refused or (reason is Reason.REPLICA_BUSY and self._has_capacity(others))
        if others is None or not (is_free or self.take_budget()):
            return False
        request.discard(attempt)
        self._end_attempt(attempt, reason, reused=False, received=True)
        if is_refused:
            self._retry_now(reason)
        else:
            self._retry(reason)
        return True

    def _has_capacity(self, others: Sequence[Replica] | None) -> bool:
        """Whether one of the replicas has not refused requests lately."""
        now = self.context.scheduler.now()
        return others is not None and any(not other.health.is_busy(now) for other in others)

    def ask_without_priority(self, attempt: Attempt) -> bool:
        """Send the request again without `priority` to a replica that seems to reject the field.

        Returns False if the replica's answer must be sent to the client.
        """
        replica, request = attempt.at, self.request
        can_send = request.body is not None and not replica.removed and not self.context.closing
        if self.state.is_contested(attempt) or not can_send or not self.may_use(replica):
            return False
        self.priority_rejected_by = replica
        attempt.error_status = 0
        request.free_connection(attempt)
        self._end_attempt(attempt, Reason.REPLICA_REFUSED, reused=False, received=True)
        self.context.metrics.retries(Reason.REPLICA_REFUSED)
        self.begin(replica, self.context.scheduler.now())
        return True

    # -- error answers ---------------------------------------------------------------------------

    def keep_error(self, attempt: Attempt, reason: Reason) -> None:
        """End an attempt that has returned an error, and keep the error.

        When all attempts have failed, the error of the earliest one is sent to the client.
        """
        context = self.context
        now = context.scheduler.now()
        began = attempt.began
        self._leaves_live(attempt, now)
        blame(self.request, context, attempt, reason, began)
        self.state.keep_error(attempt, reason, now)
        context.hedger.failed(self.request.view, attempt, now)
        context.fleet.attempt_ended(attempt.at, began)
        if not self.state.live and not (attempt.is_doubted and self._compare(attempt, reason)):
            self._send_kept_error()

    def doubts(self, attempt: Attempt, status: int) -> bool:
        """Handle an error answer, when its status is known, or the body of a 200.

        Returns whether the answer must be held back until it is complete, because another replica
        may get the request (`fleet/error_answers.py`).
        """
        attempt.error_status = status
        kind, is_compared = kind_of(status), False
        for earlier in self.state.recent:
            if earlier is attempt or not earlier.error_status:
                continue
            is_compared = True
            # All ranks of an address may be sick.
            if kind_of(earlier.error_status) == kind and attempt.at not in earlier.at.ranks:
                earlier.at.errors.confirmed(kind)
                attempt.at.errors.confirmed(kind)
            earlier.error_status = 0
        if is_compared:
            return False
        outcomes, now = self.context.fleet.outcomes, self.context.scheduler.now()
        is_doubted = outcomes.gave_error(attempt.at, status, now)
        # A busy answer is repeated by its own rule (`replace`).
        attempt.is_doubted = is_doubted and kind != ErrorKind.BUSY
        return attempt.is_doubted and len(self._peers(attempt)) > 0

    def refuses_credential(self, attempt: Attempt, status: int) -> None:
        """Handle an answer with which a replica refuses the router's own credential."""
        self.doubts(attempt, status)
        log_event(
            logging.WARNING,
            "replica refuses the router's credential",
            key=attempt.replica_id,
            replica=attempt.replica_id,
            status=status,
        )

    def _peers(self, attempt: Attempt) -> Sequence[Replica]:
        """Return the replicas to which the request of an error answer may be sent."""
        state = self.state
        if not self._can_send_again() or state.reached >= state.most:
            return ()
        # An engine may have executed a part of a request that failed. The request itself may crash
        # replicas, so it must not reach more than two.
        is_executed = kind_of(attempt.error_status) == ErrorKind.FAILED
        if is_executed and (state.lost or not self.request.route.repeatable):
            return ()
        others, ranks = self.others() or (), attempt.at.ranks
        queue = self.context.queue
        if others and queue is not None and self._is_queued():
            others = queue.open_among(self.request, others)  # A known answer does not wait.
        return others if len(ranks) == 1 else [other for other in others if other not in ranks]

    def _compare(self, attempt: Attempt, reason: Reason) -> bool:
        """Send the request of a kept error answer to another replica, to compare the answers.

        Returns False if the answer must be sent to the client.
        """
        others = self._peers(attempt)
        if not others:
            return False
        # As after a lost connection, the retry is free if the replica fails again and again.
        kind = kind_of(attempt.error_status)
        is_free = kind != ErrorKind.FAILED or attempt.at.errors.pauses(kind)
        if not is_free and not self.take_budget():
            return False
        self._go_on(others, reason)
        return True

    def _send_kept_error(self) -> None:
        """Send the client the error answer that was kept, unless the request has a fallback."""
        kept = self.state.kept_error
        assert kept is not None
        if not self.falls_back(kept.reason):
            self.request.send_kept_error()

    # -- retries ---------------------------------------------------------------------------------

    def others(self) -> Sequence[Replica] | None:
        """Return the fit replicas where the request has not failed; `None`: there are none.

        The result is empty if there are such replicas, but all of them are at their limits.
        """
        self._limit_context()
        try:
            return self.request.candidates(self.state.tried())
        except RouterError as err:
            return [] if err.reason is Reason.FLEET_FULL else None

    def take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self.context.budget.take()
            if not self._budgeted:
                self.context.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def _retry(self, cause: Reason) -> None:
        """Try another replica after a pause.

        Requests that fail for lack of capacity fail at the same time, so random pauses spread their
        retries.
        """
        context = self.context
        pause_s = context.backoff_s(self.request.rules, len(self.state.attempts))
        if pause_s > 0.0:
            self._pause()
            self._set_alarm(context.scheduler.now() + pause_s, partial(self._retry_now, cause))
        else:
            self._retry_now(cause)

    def _retry_now(self, cause: Reason) -> None:
        if not self._can_send_again():
            self._give_up(cause)
            return
        others = self.others()
        if others is not None:
            self.context.first_probes.forget(self.request)
            self._go_on(others, cause)
        elif not self._wait_for_probe(cause):
            self._give_up(cause)

    def _go_on(self, others: Sequence[Replica], cause: Reason) -> None:
        """Send the request to one of `others`, through the admission queue if it is enabled.

        `others` is empty if all replicas are at their limits.
        """
        request, context = self.request, self.context
        queue = context.queue
        if queue is not None and self._is_queued():
            try:
                replica = queue.retry(request, others, self.state.tried())
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
        route = self.request.route
        return route.inference and not route.light

    def _wait_for_probe(self, cause: Reason) -> bool:
        """Wait for the first probe of a new replica, because no other replica is left.

        Returns False if no first probe is pending, or if the probe cannot change the error.
        """
        retry, late = partial(self._retry_now, cause), partial(self._give_up, cause)
        holds = self.context.first_probes.hold(self.request, retry, late)
        if holds:
            self._pause()
        return holds

    def _wait_again(self, replica: Replica) -> bool:
        """Queue the request again, because no replica accepts connections; `replica` failed last.

        Returns False if the request cannot wait.
        """
        request, context = self.request, self.context
        queue = context.queue
        if queue is None or context.closing or request.body is None or not self._is_queued():
            return False
        return queue.wait_again(request, replica)

    def _pause(self) -> None:
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

    # -- leaving a replica -----------------------------------------------------------------------

    def _resume(self, attempt: Attempt, reason: Reason, now: float) -> bool:
        """Ask another replica for the rest of a stream that broke, or whose replica goes away.

        Returns False if no replica is asked.
        """
        request, context = self.request, self.context
        rest = None if context.closing else request.rest(attempt, reason)
        if rest is None:
            return False
        if attempt in self.state.live:
            request.drop(attempt)
            self._end_attempt(attempt, reason, reused=False, received=True)
        others, body = rest
        replica = context.chooser.choose(request.view, others, now)
        following = self.prepare(replica, now, rest=body)
        request.work.stops(now)
        request.work.broke_at = request.last_content_at()
        request.deadlines.awaits_rest()
        request.open(following, True)
        return True

    def leave(self, attempt: Attempt, now: float) -> bool:
        """Move the request away from the replica of an attempt, because that replica will go away.

        Another replica resumes a stream; a request without content is sent again. A move is not a
        failure, so it needs no retry budget. Returns False if the request stays at the replica,
        because it may not be moved, because no other replica takes it now, or because another
        attempt of the request is running.
        """
        if len(self.state.live) != 1 or self.context.closing:
            return False
        if self.state.winner is attempt:
            return self._resume(attempt, Reason.PREEMPTED, now)
        request, context = self.request, self.context
        is_repeatable = request.route.repeatable and self.state.kept_error is None
        if not is_repeatable or not self._can_send_again():
            return False
        others = self.others()
        queue = context.queue
        if queue is not None and self._is_queued():
            # If all other replicas are at their limits, the request can wait in the queue.
            return others is not None and queue.withdraw(
                request, attempt.at, others, self.state.tried(attempt), now
            )
        if not others:
            return False
        self.recall(now)
        self.begin(context.chooser.choose(request.view, others, now), now)
        return True

    # -- fallbacks -------------------------------------------------------------------------------

    def falls_back(self, reason: Reason) -> bool:
        """Send a request to its next fallback, if it has one. No attempt may be running.

        `reason`: why the request would end without a fallback. Returns False if it must end.
        """
        if self.request.named is None or self.state.live:
            return False
        return self._falls_to(self._fallback_after(reason), reason)

    def _skips_absent_model(self) -> bool:
        """Set the next fallback of a request that is placed, if no replica of its model is up.

        Returns False if there is none. Then the request may wait for a replica.
        """
        request, fleet = self.request, self.context.fleet
        if request.named is None or fleet.models.awaits_probe:
            return False
        if fleet.serving.of(request.view.model, request.view.allowed):
            return False
        index = -1 if self.state.live else self._fallback_after(Reason.NO_REPLICA)
        return self._aims_at(index, Reason.NO_REPLICA)

    def falls_back_from(self, attempt: Attempt, reason: Reason) -> bool:
        """Send the request to a fallback instead of sending the attempt's error to the client.

        Returns False if the error must be sent.
        """
        state = self.state
        if self.request.named is None or state.holds_errors() or attempt not in state.live:
            return False
        index = self._fallback_after(reason)
        if index < 0:
            return False
        self.request.discard(attempt)
        self._end_attempt(attempt, reason, reused=False, received=True)
        return self._falls_to(index, reason)

    def _fallback_after(self, reason: Reason) -> int:
        request, context = self.request, self.context
        if context.closing or request.body is None:
            return -1
        return next_fallback(request, self.state, context.fleet, reason)

    def _falls_to(self, index: int, reason: Reason) -> bool:
        """Send the request to one of its fallbacks. Below 0: there is none; returns False."""
        if not self._aims_at(index, reason):
            return False
        self.place()
        return True

    def _aims_at(self, index: int, reason: Reason) -> bool:
        """Set one of the fallbacks as the request's model. Below 0: none; returns False."""
        request, context = self.request, self.context
        named = request.named
        if index < 0 or named is None:
            return False
        now = context.scheduler.now()
        self._clear_alarm()
        context.first_probes.forget(request)
        if request.deadlines.waits_since >= 0.0:
            request.deadlines.granted(now)
        queue = context.queue
        if queue is not None and self._is_queued():
            queue.over(request, reason, None, -1, 0, now)
        if request.estimate is not None:
            request.estimate.void()
            request.estimate = None
        request.unreached_since = NOT_SINCE
        self.state.fall_back()
        request.target = target = named.fallbacks[index]
        request.next_fallback = index + 1
        view = request.view
        view.model = context.fleet.models.routed_target(target)
        # The prompt's hashes and token IDs are those of the model before.
        view.blocks = ()
        view.chains = None
        context.metrics.fallback(CONDITIONS[reason])
        return True

    def _limit_context(self) -> None:
        queue = self.context.queue
        if self.request.limit_context() and queue is not None:
            queue.limits_changed(self.request)

    # -- giving up -------------------------------------------------------------------------------

    def _give_up(self, reason: Reason) -> None:
        """End the request without another attempt at its model."""
        if not self.replaces_error(reason):
            self.answer_failure(reason)

    def answer(self, err: RouterError) -> None:
        """End the request with an error of the router.

        The request goes to a fallback instead, or the client gets an engine's answer that was kept.
        """
        if not self.is_over and not self.replaces_error(err.reason, err.is_final):
            self.cancel(err.reason)
            self.request.fail(err)

    def answer_failure(self, reason: Reason) -> None:
        """End the request because every attempt failed or a time limit passed."""
        retry_after = 2 if reason.status == 503 else None
        self.answer(RouterError(reason, MESSAGES[reason], retry_after_s=retry_after))

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
        self.request.send_kept_error()
        return True

    def _answer_later(self, reason: Reason) -> None:
        """Answer a request with an error after a pause, in which a death of an engine is noticed.

        So a client that repeats the request at once is refused if the request kills engines.
        """
        self._pause()
        due = self.context.scheduler.now() + _NOTICE_S
        self._set_alarm(due, partial(self.answer_failure, reason))

    # -- deadlines -------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Act on the time limits that have passed (`deadlines.py`)."""
        request = self.request
        deadlines = request.deadlines
        passed = deadlines.passed(now)
        if passed == Passed.SILENCE and not deadlines.is_silent(request.last_content_at(), now):
            passed = Passed.NOTHING
        if passed == Passed.TOTAL:
            self.timed_out(Reason.TOTAL_TIMEOUT)
        elif passed == Passed.READING:
            request.stalled()
        elif passed == Passed.SILENCE:
            self.timed_out(Reason.TOKEN_GAP_TIMEOUT)
        elif passed == Passed.BEGINNING:
            # The client's deadline has passed, which is not a failure of the replica.
            reason = Reason.DEADLINE_PASSED
            request.estimate_work(now)
            self.answer(RouterError(reason, MESSAGES[reason], retry_after_s=1))
        else:
            self._check_attempts(now)
            if not self.is_over and deadlines.needs_comment(now):
                request.comment(now)
        if not self.is_over:
            deadlines.update()

    def _check_attempts(self, now: float) -> None:
        """Check deadlines: signs of work, first content timeouts, and connect timeouts of classes.

        A timeout ends only its own attempt; each attempt has its own deadlines.
        """
        request = self.request
        for attempt in [*self.state.live]:
            if attempt not in self.state.live:
                continue  # The end of another attempt has also ended this attempt.
            if attempt.work_due <= now and self._check_work(attempt, now):
                continue
            if attempt.connect_due <= now:
                attempt.connect_due = NEVER
                request.drop(attempt)
                self.failed(attempt, Reason.CONNECT_TIMEOUT, reused=False, received=False)
            elif attempt.first_due <= now:
                attempt.first_due = NEVER
                request.drop(attempt)
                self.failed(attempt, self._late(), reused=False, received=True)

    def _check_work(self, attempt: Attempt, now: float) -> bool:
        """Check whether the replica of an attempt without content works.

        If it shows no work, the attempt counts against the replica. If the replica is then unfit,
        the request is sent to another replica. Returns True if it is.
        """
        request, replica = self.request, attempt.at
        outcomes = self.context.fleet.outcomes
        is_streamed = request.view.stream
        suspect_min_s = replica.health.rules.suspect_min_s
        works_until = outcomes.works_until(replica, attempt.began, now, is_streamed)
        again = min(works_until, now + suspect_min_s)
        kept = self.state.kept_error
        is_comparison = (
            kept is not None and kept.index < attempt.index and len(self.state.live) == 1
        )
        if is_comparison and (works_until <= now or outcomes.is_unfit(replica, attempt.began, now)):
            # The client gets the error answer that is known.
            request.drop(attempt)
            self.failed(attempt, Reason.REPLICA_STALLED, reused=False, received=True)
            return True
        if works_until <= now:
            # The replica is ejected as soon as other attempts count against it, too.
            again = now + suspect_min_s * _AGAIN
            is_unfit = outcomes.is_unfit(replica, attempt.began, now)
            if not is_unfit and attempt.overdue_due <= now:
                attempt.overdue_due = NEVER
                attempt.is_overdue = True
                outcomes.overdue(replica, attempt.began, now, is_streamed, request.request_id)
                is_unfit = outcomes.is_unfit(replica, attempt.began, now)
            if is_unfit and self._leave_stalled(attempt):
                return True
        attempt.work_due = min(again, attempt.overdue_due) if attempt.overdue_due > now else again
        return False

    def _leave_stalled(self, attempt: Attempt) -> bool:
        """Send the request to another replica, as if its connection to this replica were lost.

        The retry budget and the limit of lost attempts apply. Returns False if the attempt stays,
        because the replica may still answer.
        """
        state, request = self.state, self.request
        if len(state.live) != 1 or not attempt.is_sent or not self._can_send_again():
            return False
        # The request itself may stop replicas, so it must not reach more than two.
        if not request.route.repeatable or state.kept_error is not None or state.lost:
            return False
        if state.reached >= state.most or not self.others() or not self.take_budget():
            return False
        request.drop(attempt)
        self._end_attempt(attempt, Reason.REPLICA_STALLED, reused=False, received=True)
        self._retry(Reason.REPLICA_STALLED)
        return True

    def _late(self) -> Reason:
        """Return the reason for an attempt whose first content did not come in time."""
        if self.state.commit == Commit.CONTENT:
            return Reason.TOKEN_GAP_TIMEOUT  # The attempt was asked for the rest of a stream.
        return (
            Reason.WHOLE_TIMEOUT if self.request.deadlines.waits_for_whole else Reason.TTFT_TIMEOUT
        )

    def timed_out(self, reason: Reason) -> None:
        """Handle a timeout of the whole request or of the relayed stream."""
        live = [*self.state.live]
        for attempt in live:
            self.request.drop(attempt)
        for attempt in live:
            self.failed(attempt, reason, reused=False, received=True)
        if not live:
            self._clear_alarm()
            self._give_up(reason)

    # -- timers ----------------------------------------------------------------------------------

    def _set_alarm(self, when: float, then: Callable[[], None]) -> None:
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

    def _clear_alarm(self) -> None:
        """Cancel the timer of a pending hedge, retry or answer."""
        if self._alarm is not None:
            self._alarm.clear()

    # -- the end ---------------------------------------------------------------------------------

    def completed(self, attempt: Attempt, reason: Reason, now: float) -> None:
        """End the winner, whose response is complete; its connection can be reused."""
        self.state.completed(attempt, now, reason)
        self.request.free_connection(attempt)
        self.context.fleet.attempt_ended(attempt.at, attempt.began)

    def _end_attempt(
        self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool
    ) -> int:
        """End an attempt that gave no complete response. Returns the next `Step`."""
        request, context = self.request, self.context
        replica = attempt.at
        shows_nothing = self.state.winner is not attempt
        began = attempt.began
        now = context.scheduler.now()
        self._leaves_live(attempt, now)
        shown = began if shows_nothing else request.last_content_at()
        blame(request, context, attempt, reason, shown)
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

    def _leaves_live(self, attempt: Attempt, now: float) -> None:
        """Note that an attempt is about to end; without another one, no timer is needed."""
        state = self.state
        state.live.remove(attempt)
        if not state.live:
            self._clear_alarm()
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
        self._clear_alarm()
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
        self._clear_alarm()
        # Break reference cycles, so that no garbage collection is needed.
        self._alarm = self._then = None
        for attempt in self.state.attempts:
            attempt.io = None
        del self.request


def _load(replica: Replica) -> tuple[int, int]:
    # Replicas are compared by `inflight`, too, because requests that use no GPU count only there.
    return replica.load, replica.inflight
