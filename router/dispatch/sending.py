"""What the replica of one attempt is sent: the client's request, and what of ours goes with it.

Built anew for each attempt, because replicas differ in what they understand.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.dispatch.body_edit import append, size_of, with_length
from router.dispatch.leg import Leg
from router.dispatch.upstream_head import attempt_head
from router.dispatch.usage_ask import PATHS, inject
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
    edited = leg.rest  # the body of a continuation, or as the client wrote it
    asking = _asking_for_usage(exchange, edited or body, replica)
    edited = asking or edited
    rid = exchange.aborter.name(replica) if exchange.aborter is not None else b""
    named = append(edited or body, b'"rid":"%b"' % rid) if rid else None
    edited = named or edited
    if edited is not None:
        lines = with_length(common, exchange.body_bytes, size_of(edited))
        assert lines is not None or leg.rest is None, "a whole body would say everything again"
        if lines is not None:
            common, body = lines, edited
            leg.asks_for_usage = asking is not None
            leg.attempt.rid = rid if named is not None else b""
    head = attempt_head(
        exchange.head,
        replica.base_path,
        replica.host_line,
        common,
        exchange.request_id,
        leg.attempt.index,
    )
    conn.send(leg, head, body, for_head=exchange.no_body)


def _asking_for_usage(
    exchange: Exchange, body: list[bytes], replica: Replica
) -> list[bytes] | None:
    """The body, made to ask for the stream's usage; None: as it is."""
    if (
        not exchange.fields.stream
        or exchange.path not in PATHS
        or exchange.body_bytes > SCAN_ABOVE  # not decoded: it may ask already
        or not exchange.asks_for_usage
    ):
        return None
    return inject(body, exchange.stream_options, replica.engine)
