"""Ends a request for a reason that is not its answer: the router stops, its key may not use the
fleet any more, or the router has answered it.

Each function ends a request at most once (`Exchange.finish`).

Must never: leave an attempt running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.dispatch.attempts.attempt_io import io_of
from router.dispatch.driver.attempt_state import Commit
from router.dispatch.messages import MESSAGES
from router.dispatch.usage.usage_estimate import learn_stream, usage_at_end

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange


def shut(x: Exchange) -> None:
    """End the request because the router stops."""
    reason = Reason.DRAINING
    refuse(x, RouterError(reason, MESSAGES[reason], retry_after_s=1))


def refuse(x: Exchange, err: RouterError) -> None:
    """End the request with an error of the router.

    The client gets an error response, an error event or a visible truncation, depending on what
    was sent before.
    """
    try:
        break_off(x, err)
    except Exception as again:
        x.crashed(again)


def revoke(x: Exchange, err: RouterError) -> None:
    """Refuse the request because its key was removed, unless it was sent to a replica.

    A request that was sent before is served to its end, but it is not sent again.
    """
    live = x.driver.state.live
    is_sent = any(io_of(attempt).conn is not None for attempt in live)
    if is_sent or x.driver.state.commit == Commit.CONTENT:
        x.release_body()
    else:
        refuse(x, err)


def break_off(x: Exchange, err: RouterError) -> None:
    """Like `refuse`, but may raise."""
    if x.reply.is_complete:  # The exception came after the whole response was written.
        x.driver.cancel(err.reason)
        x.finish(err.reason, monotonic(), is_whole=True)
        x.client.done(False, monotonic())
    # Before the status is sent, the client has received no byte of the winning attempt.
    elif x.driver.state.commit == Commit.CONTENT and x.reply.status and not x.driver.is_over:
        x.driver.cancel(err.reason)
        x.truncate(err.reason, err)
    else:
        x.answer(err)


def abandon(x: Exchange, reason: Reason) -> None:
    """End the request without sending anything else to the client."""
    try:
        x.driver.cancel(reason)
    except Exception as err:
        x.context.log_defect(err)
    x.finish(reason, monotonic())


def count_tokens(x: Exchange, is_whole: bool) -> None:
    """Set the token counts of a request that has ended. `is_whole`: its answer is complete."""
    work, reply = x.work, x.reply
    if x.route.inference and not x.route.light:
        ratio = x.context.fleet.knowledge.ratio
        work.usage = usage_at_end(work, reply, x.asked, x.view, ratio, is_whole=is_whole)
        if not work.usage.exact:
            learn_stream(work, reply, x.asked, x.view, ratio)
        work.timely = reply.timely(is_whole)
    if reply.stream is not None:
        reply.stream.close()
