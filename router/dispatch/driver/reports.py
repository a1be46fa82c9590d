"""Reports the events of an attempt to the parts that learn from it.

These parts are the fleet (health), the chooser (the prefix index and the policy), the hedger, the
estimates and the speed learners.

Must never: begin or end an attempt, or decide what follows an event.
"""

from __future__ import annotations

from router.core.errors import Reason
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.request import Request
from router.dispatch.driver.retry import LOST
from router.dispatch.driver.speed_samples import sample_cut, sample_shown


def content_shown(
    request: Request, context: Context, attempt: Attempt, ttft_s: float | None, now: float
) -> None:
    """Report the winner's first content.

    `ttft_s`: seconds to the first content; `None` if the content is the whole answer.
    """
    replica = attempt.at
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
        context.chooser.shown(request.view, replica, attempt.held_blocks, ttft_s, now)
        context.hedger.shown(request.view, attempt, now)


def refusal_shown(request: Request, context: Context, attempt: Attempt, now: float) -> None:
    """Report that the winner's answer is an error, so the replica has prefilled nothing."""
    context.chooser.withdrawn(request.view, attempt.at, attempt.held_blocks)
    context.hedger.failed(request.view, attempt, now)


def ended_unshown(request: Request, context: Context, attempt: Attempt, now: float) -> None:
    """Report the end of an attempt that has not won.

    The prompt is removed from the replica's prefix index, because a replica that showed no content
    may not hold the prompt. The winner is reported with its token count when the request ends.
    """
    sample_cut(attempt, now)
    context.chooser.withdrawn(request.view, attempt.at, attempt.held_blocks)
    context.chooser.finished(request.view, attempt.at, None, now)


def blame(
    request: Request, context: Context, attempt: Attempt, reason: Reason, shown: float
) -> None:
    """Report a failed attempt to the fleet.

    `shown`: the time at which the attempt last showed content, or else of its dispatch.
    """
    if reason in LOST or reason is Reason.SERVER_ERROR:
        lost(request, context, attempt)
    context.fleet.outcomes.failed(
        attempt.at,
        reason,
        attempt.began,
        shown,
        was_overdue=attempt.is_overdue,
        request_id=request.request_id,
    )


def lost(request: Request, context: Context, attempt: Attempt) -> None:
    """Report that the replica has lost the request, perhaps because its process has died."""
    if attempt.is_sent:
        context.fleet.lost(attempt.at, request.digest(), attempt.began)


def answered_badly(request: Request, context: Context, attempt: Attempt, reason: Reason) -> None:
    """Report an error for which the replica is to blame, and which the client has got."""
    context.fleet.outcomes.failed(attempt.at, reason, attempt.began, request_id=request.request_id)
    lost(request, context, attempt)


def contradicted(request: Request, context: Context, attempts: list[Attempt]) -> None:
    """Report to the replicas whose attempts gave an error that the request was answered."""
    for attempt in attempts:
        if attempt.error_status:
            is_own = attempt.reason is Reason.CREDENTIAL_REFUSED
            evidence = None if is_own else _evidence(request)
            status, attempt.error_status = attempt.error_status, 0
            context.fleet.outcomes.contradicted(
                attempt.at, status, evidence, attempt.began, request.request_id
            )


def _evidence(request: Request) -> int:
    """Return a hash of the request's client and body."""
    flow = request.flow
    return hash((flow.account, flow.member, b"".join(request.body or ())))
