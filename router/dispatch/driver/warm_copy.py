"""A copy of a stream that fills the prefix cache of a cold replica (`hedging/warm_up.py` decides).

The copy is sent when its stream has begun, and is cancelled at its own first token: by then the
replica has computed the prompt. Nothing of the copy's response reaches the client. The copy is not
one of the attempts of its request (`attempt_state.py`): its failure is never retried, and it never
replaces an attempt. It ends with its request at the latest.

Must never: choose a replica, affect the request, or release its lease twice.
"""

from __future__ import annotations

from typing import Final

from router.core.errors import Reason
from router.core.lease import Lease
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Kind, Phase
from router.dispatch.driver.driven_request import DrivenRequest
from router.dispatch.hedging.warm_up import WarmCopyPlan, WarmUp
from router.observe.hedge_counts import CUT, FAILED, FILLED
from router.wire.sweep import NEVER

# The index of a copy among the attempts of its request; no other attempt reaches this index. The
# index is a part of the names under which engines know attempts.
INDEX: Final = 99


class WarmCopy:
    """One copy. Times are monotonic seconds."""

    __slots__ = ("_context", "_plan", "_request", "_warm_up", "attempt")

    def __init__(
        self,
        request: DrivenRequest,
        context: Context,
        warm_up: WarmUp,
        plan: WarmCopyPlan,
        now: float,
    ) -> None:
        """Take the lease of the copy. `begin` sends the copy."""
        self._request = request
        self._context = context
        self._warm_up = warm_up
        self._plan = plan
        replica = plan.cold.replica
        lease = Lease(replica, plan.tokens)
        attempt = Attempt(INDEX, Kind.WARM_UP, replica, lease, now, plan.tokens, plan.held)
        attempt.first_due = now + request.times.first_token_s
        attempt.is_alone = replica.waiting <= 1
        self.attempt = attempt

    @property
    def is_running(self) -> bool:
        return self.attempt.phase != Phase.ENDED

    def begin(self) -> None:
        """Send the copy. The copy may have ended when this returns."""
        request, queue, attempt = self._request, self._context.queue, self.attempt
        self._warm_up.sent(self._plan)
        if queue is not None:
            queue.sent(request, attempt.at, attempt.began, is_extra=True)
        request.attach_copy(attempt)
        request.check_by(attempt.first_due)
        request.open(attempt, False)

    def shown(self, now: float) -> None:
        """Cancel the copy at its first token, and record the prefix that its replica now holds."""
        if not self.is_running:
            return
        attempt, context = self.attempt, self._context
        replica = attempt.at
        self._end(Reason.OK, FILLED, now)
        self._request.drop(attempt)
        if replica.removed:
            return
        context.fleet.outcomes.showed_content(
            replica,
            now,
            attempt.began,
            now - attempt.began,
            attempt.tokens,
            attempt.is_alone,
            attempt.is_timed,
        )
        context.chooser.shown(self._request.view, replica, attempt.held, None, now)

    def failed(self, reason: Reason, now: float) -> None:
        """End a copy whose connection or response has failed; its connection is closed already."""
        if not self.is_running:
            return
        attempt = self.attempt
        self._end(reason, FAILED, now)
        self._context.fleet.outcomes.failed(
            attempt.at, reason, attempt.began, attempt.began, request_id=self._request.request_id
        )

    def late(self, now: float) -> None:
        """Cancel a copy whose first token is overdue."""
        self.failed(Reason.TTFT_TIMEOUT, now)
        self._request.drop(self.attempt)

    def cancel(self, now: float) -> None:
        """End the copy with its request."""
        if self.is_running:
            self._end(Reason.HEDGE_LOST, CUT, now)
            self._request.drop(self.attempt)

    def _end(self, reason: Reason, outcome: str, now: float) -> None:
        attempt, context = self.attempt, self._context
        attempt.phase = Phase.ENDED
        attempt.lease.release()
        attempt.ended = now
        attempt.reason = reason
        attempt.first_due = NEVER
        self._warm_up.ended(self._plan, outcome, attempt.is_sent)
        context.metrics.attempt(attempt.replica_id, attempt.kind, reason, attempt.at.removed)
        context.fleet.attempt_ended(attempt.at, attempt.began)
