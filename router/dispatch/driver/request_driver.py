"""Drives the attempts of one request: decides what follows each event of an attempt.

The state machine (`attempt_state.AttemptState`) returns the next step after a failure; the driver
executes that step. Most requests have one attempt. There are four reasons for another attempt:

- A retry follows a failed attempt.
- A hedge runs in parallel to another attempt.
- Another replica is asked for the rest of a stream that broke (`resumption.py`).
- If a request cannot be served, it goes to the next fallback of its model.

A request that is preempted, or whose replica is reclaimed, is also sent again (`recall`, `leave`).

The driver has four classes. Each class extends the one before it, and uses no later one:

    RunningAttempts (`running_attempts.py`)   creates attempts, and reports their events
    HedgedAttempts (`hedged_attempts.py`)     begins and ends attempts and hedges
    RetriedAttempts (`retried_attempts.py`)   pauses, waits, retries, and fallbacks
    RequestDriver                             failures, broken streams, and deadlines

The proxy and the simulator both run this driver. The proxy's requests send bytes; the simulator's
requests run on engine cores (`driven_request.py`).

Must never: use bytes or sockets, choose a replica, depend on whether the time is real or simulated,
or leave a lease or a timer behind. Every request ends in `cancel` or with its last attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from router.core.errors import Reason
from router.dispatch.driver.arrival_estimate import sent_at_once
from router.dispatch.driver.attempt_state import Attempt, Commit, Step
from router.dispatch.driver.retried_attempts import RetriedAttempts
from router.dispatch.driver.retry import LOST, PASSING, UNSENT
from router.fleet.error_answers import ErrorKind, kind_of
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.wire.sweep import NEVER

# An attempt at a silent replica is examined again after this part of `health.suspect_min_s`.
_AGAIN: Final = 0.2


class RequestDriver(RetriedAttempts):
    """Drives the attempts of one request. Times are monotonic seconds."""

    __slots__ = ()

    # -- beginning -----------------------------------------------------------------------------

    def start(self, replica: Replica, now: float) -> None:
        """Send the first attempt of a request to a replica.

        The request is refused instead if its first token would come too late, and if its class is
        configured to refuse late requests.
        """
        request, context = self._request, self._context
        view, route = request.view, request.route
        if view.stream and route.inference and not route.light:
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
        self.begin(replica, now)

    def may_send(self, attempt: Attempt) -> bool:
        """Whether the request may be sent over the connection that the attempt just got.

        While the attempt waited for its connection, a reload may have changed the regions of the
        key or of the replica, or the request may have become suspect. Then the result is False, the
        attempt has ended, and the request continues elsewhere or has ended, too.
        """
        reason = Reason.REGION_NOT_ALLOWED
        if self.may_use(attempt.at):
            if not self.is_suspect(self._context.scheduler.now()):
                return True
            reason = Reason.SUSPECT_REQUEST
        self.failed(attempt, reason, reused=False, received=False)
        return False

    # -- failing -------------------------------------------------------------------------------

    def failed(self, attempt: Attempt, reason: Reason, *, reused: bool, received: bool) -> None:
        """Handle the end of an attempt that gave no complete response."""
        if attempt not in self.live:
            return
        step = self._end_attempt(attempt, reason, reused=reused, received=received)
        request, context = self._request, self._context
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
        can_resend = request.can_resend()
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
        request.answer_failure(self.state.blame)

    def _may_become_suspect(self) -> bool:
        context = self._context
        digest, now = self._request.digest(), context.scheduler.now()
        return context.fleet.suspects.may_become(digest, now)

    def replace(self, attempt: Attempt, reason: Reason) -> bool:
        """Try another replica or a fallback after an answer in `PASSING`, if no content was sent.

        Returns False if the answer must be sent to the client.
        """
        return self._retries_elsewhere(attempt, reason) or self.falls_back_from(attempt, reason)

    def _retries_elsewhere(self, attempt: Attempt, reason: Reason) -> bool:
        state, request = self.state, self._request
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
        now = self._context.scheduler.now()
        return others is not None and any(not other.health.is_busy(now) for other in others)

    def ask_without_priority(self, attempt: Attempt) -> bool:
        """Send the request again without `priority` to a replica that seems to reject the field.

        Returns False if the replica's answer must be sent to the client.
        """
        replica, request = attempt.at, self._request
        can_send = request.can_resend() and not replica.removed and not self._context.closing
        if self.is_contested(attempt) or not can_send or not self.may_use(replica):
            return False
        self.priority_rejected_by = replica
        attempt.error_status = 0
        request.free_connection(attempt)
        self._end_attempt(attempt, Reason.REPLICA_REFUSED, reused=False, received=True)
        self._context.metrics.retries(Reason.REPLICA_REFUSED)
        self.begin(replica, self._context.scheduler.now())
        return True

    def keep_error(self, attempt: Attempt, reason: Reason) -> None:
        """End an attempt that has returned an error, and keep the error.

        When all attempts have failed, the error of the earliest one is sent to the client.
        """
        context = self._context
        now = context.scheduler.now()
        self.live.remove(attempt)
        if not self.live:
            self._clear_alarms()
        self._ended_unshown(attempt, now)
        began = attempt.began
        self._blame(attempt, reason, began)
        self.state.keep_error(attempt, reason, now)
        context.hedger.failed(self._request.view, attempt, now)
        context.fleet.attempt_ended(attempt.at, began)
        if not self.live and not (attempt.is_doubted and self._compare(attempt, reason)):
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
        outcomes, now = self._context.fleet.outcomes, self._context.scheduler.now()
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
        if is_executed and (state.lost or not self._request.route.repeatable):
            return ()
        others, ranks = self.others() or (), attempt.at.ranks
        queue = self._context.queue
        if others and queue is not None and self._is_queued():
            others = queue.open_among(self._request, others)  # A known answer does not wait.
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
            self._request.send_kept_error()

    # -- broken streams ------------------------------------------------------------------------

    def _resume(self, attempt: Attempt, reason: Reason, now: float) -> bool:
        """Ask another replica for the rest of a stream that broke, or whose replica goes away.

        Returns False if no replica is asked.
        """
        request, context = self._request, self._context
        rest = None if context.closing else request.rest(attempt, reason)
        if rest is None:
            return False
        if attempt in self.live:
            request.drop(attempt)
            self._end_attempt(attempt, reason, reused=False, received=True)
        others, body = rest
        replica = context.chooser.choose(request.view, others, now)
        following = self._enter(replica, now, False, body)
        request.awaits_rest(now)
        request.open(following, True)
        return True

    # -- leaving a replica ---------------------------------------------------------------------

    def leave(self, attempt: Attempt, now: float) -> bool:
        """Move the request away from the replica of an attempt, because that replica will go away.

        Another replica resumes a stream; a request without content is sent again. A move is not a
        failure, so it needs no retry budget. Returns False if the request stays at the replica,
        because it may not be moved, because no other replica takes it now, or because another
        attempt of the request is running.
        """
        if len(self.live) != 1 or self._context.closing:
            return False
        if self.state.winner is attempt:
            return self._resume(attempt, Reason.PREEMPTED, now)
        request, context = self._request, self._context
        is_repeatable = request.route.repeatable and self.state.kept_error is None
        if not is_repeatable or not self._can_send_again():
            return False
        others = self.others()
        queue = context.queue
        if queue is not None and self._is_queued():
            # If all other replicas are at their limits, the request can wait in the queue.
            return others is not None and queue.withdraw(
                request, attempt.at, others, self._tried(attempt), now
            )
        if not others:
            return False
        self.recall(now)
        self.begin(context.chooser.choose(request.view, others, now), now)
        return True

    # -- deadlines -----------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Check deadlines: signs of work, first content timeouts, and connect timeouts of classes.

        A timeout ends only its own attempt; each attempt has its own deadlines.
        """
        request = self._request
        for attempt in [*self.live]:
            if attempt not in self.live:
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

    def gap_due(self, last_at: float, now: float) -> float:
        """Return when a relayed response is cut off, whose last bytes came at `last_at`.

        The time may be over. An engine may generate for minutes without sending a byte: tool-call
        parsers hold text back. So the gap of an engine's answer counts from the replica's last sign
        of work, and is at most as long as an answer that is not streamed may take.
        """
        request, winner = self._request, self.state.winner
        gap_s, route = request.times.token_gap_s, request.route
        due = last_at + gap_s
        if due > now or winner is None or not route.inference or route.light:
            return due
        request.see_work(winner)
        worked_at = winner.at.progress.after(last_at)
        return min(worked_at + gap_s, max(due, last_at + request.times.whole_s))

    def _check_work(self, attempt: Attempt, now: float) -> bool:
        """Check whether the replica of an attempt without content works.

        If it shows no work, the attempt counts against the replica. If the replica is then unfit,
        the request is sent to another replica. Returns True if it is.
        """
        request, replica = self._request, attempt.at
        outcomes = self._context.fleet.outcomes
        request.see_work(attempt)
        is_streamed = request.view.stream
        suspect_min_s = replica.health.rules.suspect_min_s
        works_until = outcomes.works_until(replica, attempt.began, now, is_streamed)
        again = min(works_until, now + suspect_min_s)
        kept = self.state.kept_error
        is_comparison = kept is not None and kept.index < attempt.index and len(self.live) == 1
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
        state, request = self.state, self._request
        if len(self.live) != 1 or not attempt.is_sent or not self._can_send_again():
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
        return Reason.WHOLE_TIMEOUT if self._request.waits_for_whole else Reason.TTFT_TIMEOUT

    def timed_out(self, reason: Reason) -> None:
        """Handle a timeout of the whole request or of the relayed stream."""
        live = [*self.live]
        for attempt in live:
            self._request.drop(attempt)
        for attempt in live:
            self.failed(attempt, reason, reused=False, received=True)
        if not live:
            self._clear_alarms()
            self._give_up(reason)
