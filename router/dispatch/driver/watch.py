"""Acts on the time limits of a request that have passed, and watches that its replicas work.

`deadlines.py` says which limit has passed. A timeout of an attempt ends only this attempt. An
attempt whose replica shows no work counts against the replica.

Must never: end an attempt before its time.
"""

from __future__ import annotations

from typing import Final

from router.core.errors import Reason, RouterError
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.deadlines import Passed
from router.dispatch.driver.placing import answer, answer_failure
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.retries import failed, retry
from router.dispatch.messages import MESSAGES
from router.wire.sweep import NEVER

# An attempt at a silent replica is examined again after this part of `health.suspect_min_s`.
_AGAIN: Final = 0.2


def check(driver: RequestDriver, now: float) -> None:
    """Act on the time limits that have passed (`deadlines.py`)."""
    request = driver.request
    deadlines = request.deadlines
    passed = deadlines.passed(now)
    if passed == Passed.SILENCE and not deadlines.is_silent(request.last_content_at(), now):
        passed = Passed.NOTHING
    if passed == Passed.TOTAL:
        timed_out(driver, Reason.TOTAL_TIMEOUT)
    elif passed == Passed.READING:
        request.stalled()
    elif passed == Passed.SILENCE:
        timed_out(driver, Reason.TOKEN_GAP_TIMEOUT)
    elif passed == Passed.DEADLINE:
        # The client's deadline has passed, which is not a failure of the replica.
        reason = Reason.DEADLINE_PASSED
        request.estimate_work(now)
        answer(driver, RouterError(reason, MESSAGES[reason], retry_after_s=1))
    else:
        _check_attempts(driver, now)
        if not driver.is_over and deadlines.needs_comment(now):
            request.comment(now)
    if not driver.is_over:
        deadlines.update()


def _check_attempts(driver: RequestDriver, now: float) -> None:
    """Check deadlines: signs of work, first content timeouts, and connect timeouts of classes.

    A timeout ends only its own attempt; each attempt has its own deadlines.
    """
    request = driver.request
    for attempt in [*driver.state.live]:
        if attempt not in driver.state.live:
            continue  # The end of another attempt has also ended this attempt.
        if attempt.work_due <= now and _check_work(driver, attempt, now):
            continue
        if attempt.connect_due <= now:
            attempt.connect_due = NEVER
            request.drop(attempt)
            failed(driver, attempt, Reason.CONNECT_TIMEOUT)
        elif attempt.first_due <= now:
            attempt.first_due = NEVER
            request.drop(attempt)
            failed(driver, attempt, _late(driver))


def _check_work(driver: RequestDriver, attempt: Attempt, now: float) -> bool:
    """Check whether the replica of an attempt without content works.

    If it shows no work, the attempt counts against the replica. If the replica is then unfit,
    the request is sent to another replica. Returns True if it is.
    """
    request, replica = driver.request, attempt.at
    outcomes = driver.context.fleet.outcomes
    is_streamed = request.view.stream
    suspect_min_s = replica.health.rules.suspect_min_s
    works_until = outcomes.works_until(replica, attempt.began, now, is_streamed)
    again = min(works_until, now + suspect_min_s)
    kept = driver.state.kept_error
    is_comparison = kept is not None and kept.index < attempt.index and len(driver.state.live) == 1
    if is_comparison and (works_until <= now or outcomes.is_unfit(replica, attempt.began, now)):
        # The client gets the error answer that is known.
        request.drop(attempt)
        failed(driver, attempt, Reason.REPLICA_STALLED)
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
        if is_unfit and _leave_stalled(driver, attempt):
            return True
    attempt.work_due = min(again, attempt.overdue_due) if attempt.overdue_due > now else again
    return False


def _leave_stalled(driver: RequestDriver, attempt: Attempt) -> bool:
    """Send the request to another replica, as if its connection to this replica were lost.

    The retry budget and the limit of lost attempts apply. Returns False if the attempt stays,
    because the replica may still answer.
    """
    state, request = driver.state, driver.request
    if len(state.live) != 1 or not attempt.is_sent or not driver.can_send_again():
        return False
    # The request itself may stop replicas, so it must not reach more than two.
    if not request.route.repeatable or state.kept_error is not None or state.lost:
        return False
    if state.reached >= state.most or not driver.others() or not driver.take_budget():
        return False
    request.drop(attempt)
    driver.end_attempt(attempt, Reason.REPLICA_STALLED)
    retry(driver, Reason.REPLICA_STALLED)
    return True


def _late(driver: RequestDriver) -> Reason:
    """Return the reason for an attempt whose first content did not come in time."""
    if driver.state.commit == Commit.CONTENT:
        return Reason.TOKEN_GAP_TIMEOUT  # The attempt was asked for the rest of a stream.
    return Reason.WHOLE_TIMEOUT if driver.request.deadlines.waits_for_whole else Reason.TTFT_TIMEOUT


def timed_out(driver: RequestDriver, reason: Reason) -> None:
    """Handle a timeout of the whole request or of the relayed stream."""
    live = [*driver.state.live]
    for attempt in live:
        driver.request.drop(attempt)
    for attempt in live:
        failed(driver, attempt, reason)
    if not live:
        driver.clear_alarm()
        answer_failure(driver, reason)
