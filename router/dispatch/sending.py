"""What the replica of one attempt is sent: the client's request, and what of ours goes with it.

Built anew for each attempt, because replicas differ in what they understand.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.dispatch.body_edit import append, size_of, with_length
from router.dispatch.engine_priority import NONE, NOTHING, Told, dialect_of, tell, write
from router.dispatch.leg import Leg
from router.dispatch.upstream_head import attempt_head
from router.dispatch.usage_ask import PATHS, inject
from router.fleet.replica import Replica
from router.intake.body import SCAN_ABOVE
from router.observe.events import log_event
from router.wire.replica import ReplicaConnection

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange


def send(exchange: Exchange, leg: Leg, conn: ReplicaConnection) -> None:
    """Send an attempt over its connection."""
    replica = leg.replica
    body = exchange.body or []
    common = exchange.common
    edited = leg.rest  # the body of a continuation, or as the client wrote it
    told = _tell_priority(exchange, leg) if body and exchange.route.inference else NOTHING
    if told.member or exchange.has_priority:
        edited = write(edited or body, told.member, exchange.has_priority) or edited
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
            leg.refusal = told.refusal
            leg.attempt.rid = rid if named is not None else b""
    common += told.header
    head = attempt_head(
        exchange.head,
        replica.base_path,
        replica.host_line,
        common,
        exchange.request_id,
        leg.attempt.index,
    )
    conn.send(leg, head, body, for_head=exchange.no_body)


def _tell_priority(exchange: Exchange, leg: Leg) -> Told:
    """What the replica is told of the request's urgency."""
    replica = leg.replica
    dialect = NONE if exchange.race.untold is replica else dialect_of(replica)
    must = exchange.body_bytes > SCAN_ABOVE  # not decoded: it may say something itself
    told = tell(dialect, exchange.path, exchange.urgency, must)
    if told.drops and exchange.metrics.priority_dropped(replica.id):
        log_event(
            logging.WARNING,
            "a replica is not told priorities",
            key=f"priority {replica.id}",
            replica=replica.id,
            engine=replica.engine,
            path=exchange.path.decode("utf-8", "replace"),
        )
    return told


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
