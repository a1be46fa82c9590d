"""Builds the request of one attempt: the client's request, and the router's additions to it.

The request is built again for each attempt, because replicas support different fields.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

import logging

from router.dispatch.attempts.body_edit import append, renamed, size_of, with_length
from router.dispatch.attempts.engine_priority import (
    NOTHING,
    PriorityParts,
    absent,
    dialect_of,
    keeps_numbers,
    priority_parts,
    without,
)
from router.dispatch.attempts.upstream_head import attempt_head
from router.dispatch.client_request import ClientRequest
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.proxied_request import ProxiedRequest
from router.dispatch.usage.usage_ask import PATHS, asking, replaced
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.replica import Replica
from router.intake.body import DECODE_UP_TO, SCAN_ABOVE, places_of
from router.intake.members import Place
from router.observe.events import log_event


def head_and_body(attempt: Attempt, request: ProxiedRequest) -> tuple[bytes, list[bytes]]:
    """Return the head and the body that the attempt sends, and note in it what they ask for."""
    replica = attempt.at
    engine = replica.descriptor
    asked = request.asked
    client_body = request.body or []
    common = asked.common
    edited = attempt.rest  # The body for the rest of a stream; `None`: the client's own body.
    places = None  # Positions of members in the edited body, if a scan has found them.
    target = request.target
    if target is not None and target.model != asked.model and client_body:
        found = _with_model(target.model, asked, client_body, edited)
        if found is not None:
            edited, places = found
    parts = NOTHING
    if client_body and request.route.inference and request.route.is_known:
        is_rejected = request.driver.priority_rejected_by is replica
        parts = _priority_parts(SILENT if is_rejected else dialect_of(replica), replica, request)
    members = parts.member
    if asked.has_priority:
        removed = None
        if asked.body_bytes <= SCAN_ABOVE:
            removed = _without_priority(asked, client_body, edited, places)
        if removed is not None:
            edited = removed
        elif not members:
            # The body cannot be edited, so a member is appended. Engines use the last of two
            # members with the same name.
            members = absent(replica)
    asks = False  # Whether the edited body asks for token counts that the client does not want.
    is_hidden = False  # The same for a body to which a member is appended.
    appends_question = b""  # The JSON member to append that asks for token counts.
    if _may_ask_for_usage(request, asked):
        options = asked.stream_options
        ask = engine.usage_ask
        access = replica.access
        if access is not None:
            ask = access.usage_ask(ask)
        if ask is not None and options is None:
            appends_question = ask.member
            is_hidden = True
        elif ask is not None and options is not None:
            changed = asking(options, ask)
            if changed is not None:
                wanted, is_hidden = changed
                replacing = None
                if asked.body_bytes <= DECODE_UP_TO:
                    replacing = replaced(edited or client_body, options, wanted)
                if replacing is None:
                    appends_question = b'"stream_options":' + wanted
                else:
                    edited, asks = replacing, is_hidden
        if appends_question:
            members = _also(members, appends_question)
    rid = b""
    abort = engine.abort
    if abort is not None:
        aborter = asked.aborter
        if aborter is not None and aborter.aborts(replica) and asked.path in abort.paths:
            rid = b"%b-%02d" % (asked.name, attempt.index)
            members = _also(members, abort.member(rid))
        elif asked.has_rid:
            members = _also(members, abort.nameless)
        if asked.parameters is not None:
            members = _also(members, asked.parameters)
    if asked.names_response:  # The engine would use the client's `request_id` as the response's id.
        own = b'"request_id":"resp_%b-%02d"' % (asked.name, attempt.index)
        members = _also(members, own)
    appended = None
    if members:
        appended = append(edited or client_body, members)
        if appended is None:  # The body is not a JSON object, so no member can be added.
            rid = b""
        else:
            edited = appended
            asks = asks or is_hidden
    body = client_body
    if parts.header:
        attempt.sent_priority = parts.number
    if edited is not None:
        lines = with_length(common, asked.body_bytes, size_of(edited))
        assert lines is not None or attempt.rest is None, "the rest of a stream needs its own body"
        if lines is not None:
            common, body = lines, edited
            attempt.asks_for_usage = asks
            attempt.refusal = parts.refusal
            if appended is not None:
                attempt.sent_priority = parts.number
            attempt.rid = rid
            attempt.abort_rule = abort if rid else None
    if attempt.sent_priority:
        replica.last_priority = attempt.sent_priority
    if parts.header:
        common = common + parts.header
    access = replica.access
    if access is not None:
        keys = [asked.head.authorization, asked.head.api_key] if asked.forwards_key else []
        common = access.lines(common, keys)
    if replica.rank_line:
        common = common + replica.rank_line
    made = attempt_head(
        asked.head,
        replica.base_path,
        replica.host_line,
        common,
        asked.name,
        attempt.index,
    )
    return made, body


def _also(members: bytes, another: bytes) -> bytes:
    return b"%b,%b" % (members, another) if members else another


def _with_model(
    model: str, asked: ClientRequest, client_body: list[bytes], edited: list[bytes] | None
) -> tuple[list[bytes], list[Place]] | None:
    """Return the body with another model's name; see `renamed`.

    `edited`: the body for the rest of a stream.
    """
    content_type = asked.head.content_type
    if edited is not None:
        return renamed(edited, size_of(edited), content_type, None, model)
    return renamed(client_body, asked.body_bytes, content_type, asked.head.reading.watch, model)


def _without_priority(
    asked: ClientRequest,
    client_body: list[bytes],
    edited: list[bytes] | None,
    places: list[Place] | None,
) -> list[bytes] | None:
    """Return the body without its `priority`; `None` if the body cannot be read.

    `edited`: the body for the rest of a stream, or the body with another model's name. `places`:
    the positions of its members, if a scan has found them.
    """
    if edited is not None:
        return without(edited, places or None)
    return without(client_body, places_of(asked.head.reading.watch, asked.body_bytes))


def _priority_parts(dialect: Dialect, replica: Replica, request: ProxiedRequest) -> PriorityParts:
    """Return the parts of the request that send its priority to the replica."""
    asked = request.asked
    # A body larger than `SCAN_ABOVE` is not edited, so the client's `priority` may still be in it.
    must = asked.body_bytes > SCAN_ABOVE
    parts = priority_parts(
        dialect,
        keeps_numbers(replica),
        asked.path,
        request.urgency,
        asked.arrived_wall,
        request.rules.level_s,
        must,
    )
    if parts.drops and request.context.metrics.priority_dropped(replica.id):
        log_event(
            logging.WARNING,
            "priorities are not forwarded to this replica",
            key=f"priority {replica.id}",
            replica=replica.id,
            engine=replica.engine,
            path=asked.path.decode("utf-8", "replace"),
        )
    return parts


def _may_ask_for_usage(request: ProxiedRequest, asked: ClientRequest) -> bool:
    """Whether the router may ask for the stream's token counts when the client did not.

    A request whose members could not be read is no stream.
    """
    return request.view.stream and request.rules.asks_for_usage and asked.path in PATHS
