"""What the replica of one attempt is sent: the client's request, and what of ours goes with it.

Built anew for each attempt, because replicas differ in what they understand.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.dispatch.abort import ENGINE
from router.dispatch.body_edit import append, size_of, with_length
from router.dispatch.engine_priority import (
    NOTHING,
    Told,
    absent,
    dialect_of,
    keeps_numbers,
    tell,
    without,
)
from router.dispatch.leg import Leg
from router.dispatch.upstream_head import attempt_head
from router.dispatch.usage_ask import MEMBERS, PATHS, member, replaced
from router.fleet.dialects import NONE
from router.intake.body import DECODE_UP_TO, SCAN_ABOVE, places_of
from router.observe.events import log_event
from router.wire.replica import ReplicaConnection

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange


def send(exchange: Exchange, leg: Leg, conn: ReplicaConnection) -> None:
    """Send an attempt over its connection."""
    replica = leg.attempt.at
    client_body = exchange.body or []
    common = exchange.common
    edited = leg.attempt.rest  # a continuation's body; else None: as the client wrote it
    told = NOTHING
    if client_body and exchange.route.inference and exchange.route.is_known:
        told = _tell_priority(exchange, leg)
    members = told.member
    if exchange.has_priority:
        if exchange.body_bytes <= SCAN_ABOVE:
            edited = _without_priority(exchange, edited) or edited
        elif not members:
            members = absent(replica)  # too large to be edited; of two members the last counts
    asks = False  # by what is replaced in the body ...
    appends_question = b""  # ... or by a member behind it
    if _may_ask_for_usage(exchange):
        asked = exchange.stream_options
        if asked is None:
            appends_question = MEMBERS.get(replica.engine or "", b"")
        elif exchange.body_bytes > DECODE_UP_TO:
            appends_question = member(asked, replica.engine)
        else:
            asking = replaced(edited or client_body, asked, replica.engine)
            asks = asking is not None
            edited = asking or edited
        if appends_question:
            members = _also(members, appends_question)
    rid = b""
    if exchange.aborter is not None and exchange.aborter.aborts(replica):
        rid = b"%b-%02d" % (exchange.name, leg.attempt.index)
        members = _also(members, b'"rid":"%b"' % rid)
    elif exchange.has_rid and replica.engine == ENGINE:
        members = _also(members, b'"rid":null')
    if exchange.parameters is not None and replica.engine == ENGINE:
        members = _also(members, exchange.parameters)
    if exchange.names_response:  # vLLM and SGLang: `request_id` becomes the id of the response
        own = b'"request_id":"resp_%b-%02d"' % (exchange.name, leg.attempt.index)
        members = _also(members, own)
    appended = None
    if members:
        appended = append(edited or client_body, members)
        if appended is None:  # it is no JSON object: nothing of ours goes with it
            rid = b""
        else:
            edited = appended
            asks = asks or bool(appends_question)
    body = client_body
    if told.header:
        leg.attempt.told = told.number
    if edited is not None:
        lines = with_length(common, exchange.body_bytes, size_of(edited))
        assert lines is not None or leg.attempt.rest is None, (
            "a whole body would say everything again"
        )
        if lines is not None:
            common, body = lines, edited
            leg.asks_for_usage = asks
            leg.refusal = told.refusal
            if appended is not None:
                leg.attempt.told = told.number
            leg.attempt.rid = rid
    if leg.attempt.told:
        replica.priority_told = leg.attempt.told
    common += told.header
    head = attempt_head(
        exchange.head,
        replica.base_path,
        replica.host_line,
        common,
        exchange.name,
        leg.attempt.index,
    )
    conn.send(leg, head, body, for_head=exchange.no_body)


def _also(members: bytes, another: bytes) -> bytes:
    return b"%b,%b" % (members, another) if members else another


def _without_priority(exchange: Exchange, edited: list[bytes] | None) -> list[bytes] | None:
    """The body less its `priority`; None: it cannot be read. `edited`: a continuation's body."""
    if edited is not None:
        return without(edited)
    return without(exchange.body or [], places_of(exchange.head.watch, exchange.body_bytes))


def _tell_priority(exchange: Exchange, leg: Leg) -> Told:
    """What the replica is told of the request's urgency."""
    replica = leg.attempt.at
    dialect = NONE if exchange.driver.untold is replica else dialect_of(replica)
    must = exchange.body_bytes > SCAN_ABOVE  # not edited: it may say something itself
    told = tell(
        dialect,
        keeps_numbers(replica),
        exchange.path,
        exchange.urgency,
        exchange.arrived_wall,
        exchange.rules.level_s,
        must,
    )
    if told.drops and exchange.context.metrics.priority_dropped(replica.id):
        log_event(
            logging.WARNING,
            "a replica is not told priorities",
            key=f"priority {replica.id}",
            replica=replica.id,
            engine=replica.engine,
            path=exchange.path.decode("utf-8", "replace"),
        )
    return told


def _may_ask_for_usage(exchange: Exchange) -> bool:
    """Whether the router may ask for the stream's token counts in the client's place."""
    return (
        bool(exchange.fields.stream)
        and exchange.rules.asks_for_usage
        and exchange.path in PATHS
        and exchange.body_bytes <= SCAN_ABOVE  # it is known whether the client asks already
    )
