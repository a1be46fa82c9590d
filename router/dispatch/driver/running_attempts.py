"""Creates the attempts of one request, keeps their time limits, and reports their events.

Every event of an attempt is reported to the parts that learn from it: the fleet (health), the
chooser (the prefix index and the policy), the hedger and the speed learners. `hedged_attempts.py`
extends this class; `request_driver.py` decides what follows an event.

Must never: begin, retry or end an attempt by itself, use bytes or sockets, or depend on whether the
time is real or simulated.
"""

from __future__ import annotations

import logging

from router.core.errors import Reason
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.driver.driven_request import NOT_SINCE, DrivenRequest
from router.dispatch.driver.retry import LOST
from router.dispatch.driver.speed_samples import sample_cut, sample_dispatched, sample_shown
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.wire.sweep import NEVER


class RunningAttempts:
    """The running attempts of one request. Times are monotonic seconds."""

    __slots__ = ("_context", "_request", "_rules", "live", "priority_rejected_by", "state")
    __deletable__ = ("_request",)  # Lets compiled code delete the attribute.

    def __init__(self, request: DrivenRequest, context: Context) -> None:
        self._request = request
        self._context = context
        self._rules = context.rules
        self.state = AttemptState(self._rules.attempts)
        self.live: list[Attempt] = []
        # A replica that seems to reject the `priority` field. That replica gets this request
        # without the field.
        self.priority_rejected_by: Replica | None = None

    # -- beginning -----------------------------------------------------------------------------

    def _enter(
        self, replica: Replica, now: float, hedge: bool, rest: list[bytes] | None = None
    ) -> Attempt:
        """Create an attempt: take its lease, and add its prompt to the replica's prefix index.

        Every attempt begins here. Raises RuntimeError if the request may not be sent to the
        replica's region.
        """
        request, context = self._request, self._context
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
        request.view.attempts = attempt.index + 1
        attempt.first_due = now + request.first_s
        queue = context.queue
        if queue is not None:
            queue.sent(request, replica, now, is_extra=hedge or rest is not None)
        if request.view.stream:
            attempt.is_alone = replica.waiting <= 1
            if request.route.inference and rest is None and not request.route.light:
                sample_dispatched(attempt, request.view.prompt_tokens, now)
        self._expect_work(attempt, now)
        if request.times.is_own:
            # The connect timeout of the class is shorter than that of the pool of connections.
            attempt.connect_due = now + request.times.connect_s
        if self.live:
            self.live.append(attempt)
        else:
            self.live = [attempt]  # takes less memory than the list after an append
        request.attach(attempt)
        request.check_by(min(attempt.first_due, min(attempt.work_due, attempt.connect_due)))
        return attempt

    def _expect_work(self, attempt: Attempt, now: float) -> None:
        """Begin to check whether the replica works, from `now` on (`RequestDriver._check_work`)."""
        request, replica = self._request, attempt.at
        route = request.route
        is_streamed = request.view.stream
        if not is_streamed and (route.light or not (route.inference and route.is_known)):
            return  # The engine may answer such a request without a sign of work.
        attempt.work_due = now + replica.health.suspect_min_s
        if not attempt.is_overdue:
            tokens = replica.pending_tokens
            attempt.overdue_due = now + replica.overdue_after_s(tokens, is_streamed)

    def may_use(self, replica: Replica) -> bool:
        """Whether the request may be sent to the region of a replica now."""
        allowed = self._request.view.allowed
        return allowed is None or allowed.allows(replica.region)

    def connected(self, attempt: Attempt) -> None:
        """Mark the attempt as sent, because it has a connection."""
        attempt.connect_due = NEVER
        self.state.sent(attempt)
        self._request.unreached_since = NOT_SINCE

    # -- first content -------------------------------------------------------------------------

    def shows(self, attempt: Attempt, ttft_s: float | None, now: float) -> None:
        """Learn from the winner's first content.

        `ttft_s`: seconds to the first content; `None` if the content is the whole answer.
        """
        request, context, replica = self._request, self._context, attempt.at
        attempt.work_due = NEVER
        context.fleet.outcomes.showed_content(
            replica,
            now,
            attempt.began,
            ttft_s,
            attempt.tokens,
            attempt.is_alone,
            attempt.is_timed,
        )
        if ttft_s is not None:
            sample_shown(attempt, ttft_s, now)
        if not attempt.is_timed:
            ttft_s = None
        estimate = request.estimate
        if estimate is not None:
            if ttft_s is None:
                estimate.void()
            else:
                estimate.shown(now)
        if request.route.is_known:
            context.chooser.shown(request.view, replica, attempt.held, ttft_s, now)
            context.hedger.shown(request.view, attempt, now)

    def shows_refusal(self, attempt: Attempt, now: float) -> None:
        """Note that the winner's answer is an error, so the replica has prefilled nothing."""
        attempt.work_due = NEVER
        view, replica = self._request.view, attempt.at
        self._context.chooser.withdrawn(view, replica, attempt.held)
        self._context.hedger.failed(view, attempt, now)

    def is_contested(self, attempt: Attempt) -> bool:
        """Whether this attempt and at least one other are still running."""
        return len(self.live) > 1 and attempt in self.live

    def holds_errors(self) -> bool:
        """Whether an error must not be sent to the client yet.

        An error must wait if another attempt is running, or if the error of an earlier attempt was
        kept, which has precedence.
        """
        return len(self.live) > 1 or self.state.kept_error is not None

    # -- failing -------------------------------------------------------------------------------

    def refused(self, attempt: Attempt, retry_after: bytes | None) -> None:
        """Report a busy answer to the fleet, so that the replica gets no requests for a while."""
        self._context.fleet.outcomes.busy(attempt.at, retry_after, self._context.scheduler.now())

    def lacks_model(self, attempt: Attempt) -> None:
        """Report an answer 404 for a model that the replica lists, so that its list is read."""
        self._context.fleet.read_list(attempt.at)

    def went_without_priority(self, replica: Replica) -> None:
        """Stop sending priorities to a replica that accepted the same request without one."""
        self.priority_rejected_by = None
        replica.refuses_priority = True
        self._context.metrics.priority_refused += 1
        log_event(
            logging.WARNING,
            "replica rejects priorities",
            key=f"no priority {replica.id}",
            replica=replica.id,
        )

    def _ended_unshown(self, attempt: Attempt, now: float) -> None:
        """Report the end of an attempt that has not won; do nothing for the winner.

        The prompt is removed from the replica's prefix index, because a replica that showed no
        content may not hold the prompt. The winner is reported with its token count when the
        request ends.
        """
        if self.state.winner is not attempt:
            sample_cut(attempt, now)
            chooser, view = self._context.chooser, self._request.view
            chooser.withdrawn(view, attempt.at, attempt.held)
            chooser.finished(view, attempt.at, None, now)

    def _blame(self, attempt: Attempt, reason: Reason, shown: float) -> None:
        """Report a failed attempt to the fleet.

        `shown`: the time at which the attempt last showed content, or else of its dispatch.
        """
        request = self._request
        if reason in LOST or reason is Reason.SERVER_ERROR:
            self.lost(attempt)
        request.see_work(attempt)
        self._context.fleet.outcomes.failed(
            attempt.at,
            reason,
            attempt.began,
            shown,
            was_overdue=attempt.is_overdue,
            request_id=request.request_id,
        )

    def lost(self, attempt: Attempt) -> None:
        """Note that the replica has lost the request, perhaps because its process has died."""
        if attempt.is_sent:
            self._context.fleet.lost(attempt.at, self._request.digest(), attempt.began)

    def is_suspect(self, now: float) -> bool:
        """Whether the same body was in flight when two engines died."""
        suspects = self._context.fleet.suspects
        return not suspects.is_empty and suspects.refuses(self._request.digest(), now)

    def _tried(self, besides: Attempt | None = None) -> list[Replica]:
        """Return the replicas where the request failed; a preempted attempt has not failed.

        `besides`: an attempt that has not failed either, because it is still running.
        """
        recent = self.state.recent
        return [a.at for a in recent if a is not besides and a.reason is not Reason.PREEMPTED]

    # -- time limits ---------------------------------------------------------------------------

    def due(self) -> float:
        """Return the time at which the driver must next check the attempts (`check_deadlines`)."""
        due = NEVER
        for attempt in self.live:
            due = min(due, min(attempt.first_due, min(attempt.work_due, attempt.connect_due)))
        return due

    def stop_first_content_timers(self) -> None:
        """Stop the first-content timers while the client does not read.

        While the client does not read, the router does not read from the replicas. So the time to
        first content would not measure the replicas.
        """
        for attempt in self.live:
            attempt.is_timed = False
            attempt.first_due = NEVER
            attempt.work_due = NEVER

    def restart_first_content_timers(self, soonest: float) -> None:
        """Restart the first-content timers when the client reads again.

        The first content is due at `soonest`, or at the time when it was due before, whichever is
        later. The time after which a sign of work is overdue (`Replica.overdue_after_s`) starts
        again.
        """
        request, now = self._request, self._context.scheduler.now()
        for attempt in self.live:
            if attempt is not self.state.winner:
                attempt.first_due = max(soonest, attempt.began + request.first_s)
                self._expect_work(attempt, now)

    # -- the end -------------------------------------------------------------------------------

    def completed(self, attempt: Attempt, reason: Reason, now: float) -> None:
        """End the winner, whose response is complete; its connection can be reused."""
        self.state.completed(attempt, now, reason)
        self.live.clear()
        self._request.free_connection(attempt)
        self._context.fleet.attempt_ended(attempt.at, attempt.began)
