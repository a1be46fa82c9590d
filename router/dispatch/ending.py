"""Ends a request for a reason that is not its answer: the router stops, its key may not use the
fleet any more, or the router has answered it.

Each function ends a request at most once (`Exchange.finish`).

Must never: leave an attempt running.
"""

from __future__ import annotations

from router.core.errors import Reason, RouterError
from router.dispatch.attempts.attempt_io import io_of
from router.dispatch.driver.attempt_state import Commit
from router.dispatch.exchange import Exchange
from router.dispatch.messages import MESSAGES


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
        x.break_off(err)
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
