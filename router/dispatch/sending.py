"""What the replica of one attempt is sent: the client's request, and what of ours goes with it.

Built anew for each attempt, because replicas differ in what they understand.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.dispatch.leg import Leg
from router.dispatch.upstream_head import attempt_head
from router.dispatch.usage_ask import PATHS, inject, with_length
from router.fleet.replica import Replica
from router.intake.body import SCAN_ABOVE
from router.wire.replica import ReplicaConnection

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange


def send(exchange: Exchange, leg: Leg, conn: ReplicaConnection) -> None:
    """Send an attempt over its connection."""
    replica = leg.replica
    body = exchange.body or []
    common = exchange.common
    asking = _asking_for_usage(exchange, replica)
    if asking is not None:
        common, body = asking
        leg.asks_for_usage = True
    head = attempt_head(
        exchange.head,
        replica.base_path,
        replica.host_line,
        common,
        exchange.request_id,
        leg.attempt.index,
    )
    conn.send(leg, head, body, for_head=exchange.no_body)


def _asking_for_usage(exchange: Exchange, replica: Replica) -> tuple[bytes, list[bytes]] | None:
    """The common lines and the body, made to ask for the stream's usage; None: as they are."""
    body = exchange.body
    if (
        not exchange.fields.stream
        or body is None
        or exchange.path not in PATHS
        or exchange.body_bytes > SCAN_ABOVE  # not decoded: it may ask already
        or not exchange.asks_for_usage
    ):
        return None
    asking = inject(body, exchange.stream_options, replica.engine)
    if asking is None:
        return None
    lines = with_length(exchange.common, exchange.body_bytes, sum(map(len, asking)))
    return None if lines is None else (lines, asking)
