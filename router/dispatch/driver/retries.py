"""Decides what follows a failed attempt, an error answer, or the loss of a replica.

The state machine (`AttemptState.failed`) returns the next step after a failure; `failed` executes
it. A retry for lack of capacity begins after a pause. Other retries begin at once. If no replica
accepts the request now, it waits in the queue, or for the first probe of a new replica
(`first_probes.py`). An error answer may be compared with the answer of another replica
(`fleet/error_answers.py`). Another replica is asked for the rest of a stream that broke
(`resumption.py`).

Must never: exceed the retry budget, or send a request again that must not be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from router.core.errors import Reason, RouterError
from router.dispatch.driver.attempt_state import Attempt, Step
from router.dispatch.driver.placing import (
    answer_failure,
    falls_back,
    falls_back_from,
    replaces_error,
)
from router.dispatch.driver.reports import blame
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.retry import LOST, PASSING, UNSENT
from router.fleet.error_answers import ErrorKind, kind_of
from router.fleet.replica import Replica
from router.observe.events import log_event

_NOTICE_S: Final = 0.1  # Seconds in which the death of an engine is mostly noticed.


def failed(
    driver: RequestDriver, attempt: Attempt, reason: Reason, *, unread: bool = False
) -> None:
    """Handle the end of an attempt that gave no complete response. `unread`: see `judge`."""
    if attempt not in driver.state.live:
        return
    step = driver.end_attempt(attempt, reason, unread=unread)
    request, context = driver.request, driver.context
    if step == Step.NOTHING:
        return
    if step == Step.TRUNCATE:
        if not _resume(driver, attempt, reason, context.scheduler.now()):
            winner = driver.state.winner
            request.truncate(reason if winner is None else winner.reason)
        return
    if step == Step.KEPT_ERROR:
        _send_kept_error(driver)
        return
    can_resend = request.body is not None
    is_here = step == Step.HERE and not attempt.at.removed and driver.may_use(attempt.at)
    if is_here and can_resend:
        context.metrics.connections_stale += 1
        context.metrics.retries(reason)
        driver.begin(attempt.at, context.scheduler.now(), fresh=True)
        return
    if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET) and driver.can_send_again():
        others = driver.others()
        if others is not None and (step != Step.BUDGET or driver.take_budget()):
            if step == Step.BUDGET:
                retry(driver, reason)
            else:
                _go_on(driver, others, reason)
            return
    if falls_back(driver, driver.state.blame):
        return
    is_safe = driver.state.lost < 2  # Otherwise the request may crash replicas.
    if reason in UNSENT and is_safe and _wait_again(driver, attempt.at):
        context.metrics.retries(reason)
        return
    is_last = step == Step.ELSEWHERE and driver.can_send_again() and not driver.others()
    if is_last and _wait_for_probe(driver, driver.state.blame):
        return
    if driver.state.blame in LOST and _may_become_suspect(driver):
        _answer_later(driver, driver.state.blame)
        return
    answer_failure(driver, driver.state.blame)


def _may_become_suspect(driver: RequestDriver) -> bool:
    context = driver.context
    digest, now = driver.request.digest(), context.scheduler.now()
    return context.fleet.suspects.may_become(digest, now)


def replace(driver: RequestDriver, attempt: Attempt, reason: Reason) -> bool:
    """Try another replica or a fallback after an answer in `PASSING`, if no content was sent.

    Returns False if the answer must be sent to the client.
    """
    return _retries_elsewhere(driver, attempt, reason) or falls_back_from(driver, attempt, reason)


def _retries_elsewhere(driver: RequestDriver, attempt: Attempt, reason: Reason) -> bool:
    state, request = driver.state, driver.request
    if not driver.can_send_again() or state.reached >= state.most:
        return False
    kept = state.kept_error
    if kept is not None and kept.reason not in PASSING:
        return False  # The client gets the kept error of an earlier attempt instead.
    if reason is Reason.STREAM_ERROR and (state.lost or not request.route.repeatable):
        return False
    others = driver.others()
    is_refused = reason is Reason.MODEL_REFUSED
    is_free = is_refused or (reason is Reason.REPLICA_BUSY and _has_capacity(driver, others))
    if others is None or not (is_free or driver.take_budget()):
        return False
    request.discard(attempt)
    driver.end_attempt(attempt, reason)
    if is_refused:
        _retry_now(driver, reason)
    else:
        retry(driver, reason)
    return True


def _has_capacity(driver: RequestDriver, others: Sequence[Replica] | None) -> bool:
    """Whether one of the replicas has not refused requests lately."""
    now = driver.context.scheduler.now()
    return others is not None and any(not other.health.is_busy(now) for other in others)


def ask_without_priority(driver: RequestDriver, attempt: Attempt) -> bool:
    """Send the request again without `priority` to a replica that seems to reject the field.

    Returns False if the replica's answer must be sent to the client.
    """
    replica, request = attempt.at, driver.request
    can_send = request.body is not None and not replica.removed and not driver.context.closing
    if driver.state.is_contested(attempt) or not can_send or not driver.may_use(replica):
        return False
    driver.priority_rejected_by = replica
    attempt.error_status = 0
    request.free_connection(attempt)
    driver.end_attempt(attempt, Reason.REPLICA_REFUSED)
    driver.context.metrics.retries(Reason.REPLICA_REFUSED)
    driver.begin(replica, driver.context.scheduler.now())
    return True


def went_without_priority(driver: RequestDriver, replica: Replica) -> None:
    """Stop sending priorities to a replica that accepted the same request without one."""
    driver.priority_rejected_by = None
    replica.errors.takes_priorities(False)
    driver.context.metrics.priority_refused += 1
    log_event(
        logging.WARNING,
        "replica rejects priorities",
        key=f"no priority {replica.id}",
        replica=replica.id,
    )


def keep_error(driver: RequestDriver, attempt: Attempt, reason: Reason) -> None:
    """End an attempt that has returned an error, and keep the error.

    When all attempts have failed, the error of the earliest one is sent to the client.
    """
    context = driver.context
    now = context.scheduler.now()
    began = attempt.began
    driver.leaves_live(attempt, now)
    blame(driver.request, context, attempt, reason, began)
    driver.state.keep_error(attempt, reason, now)
    context.hedger.failed(driver.request.view, attempt, now)
    context.fleet.attempt_ended(attempt.at, began)
    if not driver.state.live and not (attempt.is_doubted and _compare(driver, attempt, reason)):
        _send_kept_error(driver)


def doubts(driver: RequestDriver, attempt: Attempt, status: int) -> bool:
    """Handle an error answer, when its status is known, or the body of a 200.

    Returns whether the answer must be held back until it is complete, because another replica
    may get the request (`fleet/error_answers.py`).
    """
    attempt.error_status = status
    kind, is_compared = kind_of(status), False
    for earlier in driver.state.recent:
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
    outcomes, now = driver.context.fleet.outcomes, driver.context.scheduler.now()
    is_doubted = outcomes.gave_error(attempt.at, status, now)
    # A busy answer is repeated by its own rule (`replace`).
    attempt.is_doubted = is_doubted and kind != ErrorKind.BUSY
    return attempt.is_doubted and len(_peers(driver, attempt)) > 0


def refuses_credential(driver: RequestDriver, attempt: Attempt, status: int) -> None:
    """Handle an answer with which a replica refuses the router's own credential."""
    doubts(driver, attempt, status)
    log_event(
        logging.WARNING,
        "replica refuses the router's credential",
        key=attempt.replica_id,
        replica=attempt.replica_id,
        status=status,
    )


def _peers(driver: RequestDriver, attempt: Attempt) -> Sequence[Replica]:
    """Return the replicas to which the request of an error answer may be sent."""
    state = driver.state
    if not driver.can_send_again() or state.reached >= state.most:
        return ()
    # An engine may have executed a part of a request that failed. The request itself may crash
    # replicas, so it must not reach more than two.
    is_executed = kind_of(attempt.error_status) == ErrorKind.FAILED
    if is_executed and (state.lost or not driver.request.route.repeatable):
        return ()
    others, ranks = driver.others() or (), attempt.at.ranks
    queue = driver.context.queue
    if others and queue is not None and driver.is_queued():
        others = queue.open_among(driver.request, others)  # A known answer does not wait.
    return others if len(ranks) == 1 else [other for other in others if other not in ranks]


def _compare(driver: RequestDriver, attempt: Attempt, reason: Reason) -> bool:
    """Send the request of a kept error answer to another replica, to compare the answers.

    Returns False if the answer must be sent to the client.
    """
    others = _peers(driver, attempt)
    if not others:
        return False
    # As after a lost connection, the retry is free if the replica fails again and again.
    kind = kind_of(attempt.error_status)
    is_free = kind != ErrorKind.FAILED or attempt.at.errors.pauses(kind)
    if not is_free and not driver.take_budget():
        return False
    _go_on(driver, others, reason)
    return True


def _send_kept_error(driver: RequestDriver) -> None:
    """Send the client the error answer that was kept, unless the request has a fallback."""
    kept = driver.state.kept_error
    assert kept is not None
    replaces_error(driver, kept.reason)


def retry(driver: RequestDriver, cause: Reason) -> None:
    """Try another replica after a pause.

    Requests that fail for lack of capacity fail at the same time, so random pauses spread their
    retries.
    """
    context = driver.context
    pause_s = context.backoff_s(driver.request.rules, len(driver.state.attempts))
    if pause_s > 0.0:
        driver.pause()
        driver.set_alarm(context.scheduler.now() + pause_s, partial(_retry_now, driver, cause))
    else:
        _retry_now(driver, cause)


def _retry_now(driver: RequestDriver, cause: Reason) -> None:
    if not driver.can_send_again():
        answer_failure(driver, cause)
        return
    others = driver.others()
    if others is not None:
        driver.context.first_probes.forget(driver.request)
        _go_on(driver, others, cause)
    elif not _wait_for_probe(driver, cause):
        answer_failure(driver, cause)


def _go_on(driver: RequestDriver, others: Sequence[Replica], cause: Reason) -> None:
    """Send the request to one of `others`, through the admission queue if it is enabled.

    `others` is empty if all replicas are at their limits.
    """
    request, context = driver.request, driver.context
    queue = context.queue
    if queue is not None and driver.is_queued():
        try:
            replica = queue.retry(request, others, driver.state.tried())
        except RouterError:
            answer_failure(driver, driver.state.blame)
            return
        context.metrics.retries(cause)
        if replica is not None:
            driver.begin(replica, context.scheduler.now())
    elif others:
        context.metrics.retries(cause)
        now = context.scheduler.now()
        driver.begin(context.chooser.choose(request.view, others, now), now)
    else:
        answer_failure(driver, driver.state.blame)


def _wait_for_probe(driver: RequestDriver, cause: Reason) -> bool:
    """Wait for the first probe of a new replica, because no other replica is left.

    Returns False if no first probe is pending, or if the probe cannot change the error.
    """
    retry, late = partial(_retry_now, driver, cause), partial(answer_failure, driver, cause)
    holds = driver.context.first_probes.hold(driver.request, retry, late)
    if holds:
        driver.pause()
    return holds


def _wait_again(driver: RequestDriver, replica: Replica) -> bool:
    """Queue the request again, because no replica accepts connections; `replica` failed last.

    Returns False if the request cannot wait.
    """
    request, context = driver.request, driver.context
    queue = context.queue
    if queue is None or context.closing or request.body is None or not driver.is_queued():
        return False
    return queue.wait_again(request, replica)


def _answer_later(driver: RequestDriver, reason: Reason) -> None:
    """Answer a request with an error after a pause, in which a death of an engine is noticed.

    So a client that repeats the request at once is refused if the request kills engines.
    """
    driver.pause()
    due = driver.context.scheduler.now() + _NOTICE_S
    driver.set_alarm(due, partial(answer_failure, driver, reason))


def _resume(driver: RequestDriver, attempt: Attempt, reason: Reason, now: float) -> bool:
    """Ask another replica for the rest of a stream that broke, or whose replica goes away.

    Returns False if no replica is asked.
    """
    request, context = driver.request, driver.context
    rest = None if context.closing else request.rest(attempt, reason)
    if rest is None:
        return False
    if attempt in driver.state.live:
        request.drop(attempt)
        driver.end_attempt(attempt, reason)
    others, body = rest
    replica = context.chooser.choose(request.view, others, now)
    following = driver.prepare(replica, now, rest=body)
    request.work.stops(now)
    request.work.broke_at = request.last_content_at()
    request.deadlines.awaits_rest()
    request.open(following, True)
    return True


def leave(driver: RequestDriver, attempt: Attempt, now: float) -> bool:
    """Move the request away from the replica of an attempt, because that replica will go away.

    Another replica resumes a stream; a request without content is sent again. A move is not a
    failure, so it needs no retry budget. Returns False if the request stays at the replica,
    because it may not be moved, because no other replica takes it now, or because another
    attempt of the request is running.
    """
    if len(driver.state.live) != 1 or driver.context.closing:
        return False
    if driver.state.winner is attempt:
        return _resume(driver, attempt, Reason.PREEMPTED, now)
    request, context = driver.request, driver.context
    is_repeatable = request.route.repeatable and driver.state.kept_error is None
    if not is_repeatable or not driver.can_send_again():
        return False
    others = driver.others()
    queue = context.queue
    if queue is not None and driver.is_queued():
        # If all other replicas are at their limits, the request can wait in the queue.
        return others is not None and queue.withdraw(
            request, attempt.at, others, driver.state.tried(attempt), now
        )
    if not others:
        return False
    driver.recall(now)
    driver.begin(context.chooser.choose(request.view, others, now), now)
    return True
