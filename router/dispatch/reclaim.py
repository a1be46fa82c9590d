"""Moves the requests of replicas whose machines go away at a known time.

A request that is predicted to end in time finishes at its replica. The prediction uses the learned
times of the replica and the length of the flow's last answers. An unknown value counts as too late.
Any other request is moved in these cases:

- A request without content that may be repeated goes to the queue, or to another replica.
- A stream that can be resumed (`resumption.py`) is continued, if another replica takes it over now.

All other requests stay, and are examined again at the next call. If the machine goes away before a
request ends, the request fails as at any replica that fails.

Must never: end an attempt before another replica, or the queue, takes the request over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.retries import leave
from router.dispatch.exchange import Exchange
from router.fleet.replica import Replica

UNKNOWN: Final = -1.0


class Moves:
    """The numbers of requests that one call moved."""

    __slots__ = ("continued", "requeued")

    def __init__(self) -> None:
        self.requeued = 0
        self.continued = 0


def move_requests(
    exchanges: Iterable[Exchange], dues: Mapping[Replica, float], now: float
) -> Moves:
    """Move the requests that would not end before their replica goes away.

    `exchanges`: all requests of the router; each is examined once. `dues`: the replicas that go
    away, with the times by which their requests must end. Times are monotonic seconds.
    """
    moves = Moves()
    for exchange in [*exchanges]:
        try:
            _move(exchange, dues, now, moves)
        except Exception as err:
            exchange.crashed(err)
    return moves


def _move(exchange: Exchange, dues: Mapping[Replica, float], now: float, moves: Moves) -> None:
    driver = exchange.driver
    attempt = next((attempt for attempt in driver.state.live if attempt.at in dues), None)
    if attempt is None or _ends_in_time(exchange, attempt, dues[attempt.at], now):
        return
    has_shown = driver.state.winner is attempt
    if leave(driver, attempt, now):
        if has_shown:
            moves.continued += 1
        else:
            moves.requeued += 1


def _ends_in_time(exchange: Exchange, attempt: Attempt, due: float, now: float) -> bool:
    replica = attempt.at
    took_s = now - attempt.began
    if exchange.deadlines.waits_for_whole:
        return ends_by(due, now, remaining(replica.progress.whole_s, took_s), 0.0, 0.0)
    tpot_s = UNKNOWN if replica.tpot_s is None else replica.tpot_s
    shown = 0
    wait_s = 0.0
    if exchange.driver.state.winner is attempt:
        shown = max(0, exchange.reply.content_events)
    else:
        late = attempt.lateness
        predicted_s = 0.0 if late is None else late.predicted_s
        wait_s = remaining(predicted_s or replica.ttft_s or 0.0, took_s)
    return ends_by(due, now, wait_s, remaining(_output(exchange), shown), tpot_s)


def _output(exchange: Exchange) -> float:
    """Return the expected output tokens of a request; UNKNOWN if there is no queue to learn it."""
    queue = exchange.context.queue
    limit = exchange.asked.output_limit
    expected = UNKNOWN if queue is None else float(queue.expected_output(exchange))
    if limit < 0:
        return expected
    return float(limit) if expected < 0.0 else min(expected, limit)


def remaining(usual: float, spent: float) -> float:
    """Return what is left of a usual amount; UNKNOWN if the amount is unknown or used up."""
    return usual - spent if usual > spent else UNKNOWN


def ends_by(due: float, now: float, wait_s: float, tokens: float, tpot_s: float) -> bool:
    """Whether a request is predicted to end before `due`.

    `wait_s`: seconds until the first token. `tokens`: the tokens after it, each of which takes
    `tpot_s` seconds. A value below 0 is unknown; then the request does not end in time.
    """
    if wait_s < 0.0 or tokens < 0.0 or tpot_s < 0.0:
        return False
    return now + wait_s + tokens * tpot_s <= due
