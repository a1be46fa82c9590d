"""Builds the request of one attempt: the client's request, and the router's additions to it.

The request is built again for each attempt, because replicas support different fields.

Must never: choose a replica, or change the body that the request keeps for another attempt.
"""

from __future__ import annotations

import logging

from router.core.urgency import NORMAL
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
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.usage.usage_ask import PATHS, asking, replaced
from router.fleet.engines.common.descriptor import Abort
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.replica import Replica
from router.intake.body import DECODE_UP_TO, SCAN_ABOVE, places_of
from router.intake.members import Place
from router.observe.events import log_event


class _Edit:
    """The changes of the client's body for one attempt."""

    __slots__ = ("asks", "asks_hidden", "body", "is_appended", "members", "places", "rid")

    def __init__(self, body: list[bytes] | None) -> None:
        self.body = body  # `None`: the client's own body
        self.places: list[Place] | None = None  # Where a scan has found members in `body`.
        self.members = b""  # JSON members to append.
        self.is_appended = False
        self.asks = False  # Whether `body` asks for token counts that the client does not want.
        self.asks_hidden = False  # The same for `members`.
        self.rid = b""  # The name of the attempt in `members`.


def head_and_body(
    attempt: Attempt, driver: RequestDriver, asked: ClientRequest
) -> tuple[bytes, list[bytes], bytes, bool, int]:
    """Return the head and the body that an attempt sends, and what they ask of the engine.

    The third to fifth values are `AttemptIO.rid`, `asks_for_usage` and `refusal`.
    """
    request, replica = driver.request, attempt.at
    rid, asks_for_usage, refusal = b"", False, 0
    body = request.body or []
    common = asked.common
    parts = NOTHING
    if body and request.route.inference and request.route.is_known:
        is_rejected = driver.priority_rejected_by is replica
        parts = _priority_parts(
            SILENT if is_rejected else dialect_of(replica), replica, driver, asked
        )
    if parts.header:
        attempt.sent_priority = parts.number
    edit = _edit_of(attempt, request, asked, body, parts)
    if edit is not None and edit.body is not None:
        lines = with_length(common, asked.body_bytes, size_of(edit.body))
        assert lines is not None or attempt.rest is None, "the rest of a stream needs its own body"
        if lines is not None:
            common, body = lines, edit.body
            rid, asks_for_usage, refusal = edit.rid, edit.asks, parts.refusal
            if edit.is_appended:
                attempt.sent_priority = parts.number
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
        replica.endpoint.base_path,
        replica.endpoint.host_line,
        common,
        asked.name,
        attempt.index,
    )
    return made, body, rid, asks_for_usage, refusal


def _edit_of(
    attempt: Attempt,
    request: Request,
    asked: ClientRequest,
    client_body: list[bytes],
    parts: PriorityParts,
) -> _Edit | None:
    """Return the changes of the body; `None`: there are none."""
    target, rest = request.target, attempt.rest
    is_renamed = target is not None and target.model != asked.model and bool(client_body)
    asks = _may_ask_for_usage(request, asked)
    abort = attempt.at.descriptor.abort
    if (
        rest is None
        and not is_renamed
        and not parts.member
        and not asked.has_priority
        and not asks
        and abort is None
        and not asked.names_response
    ):
        return None
    edit = _Edit(rest)
    if target is not None and is_renamed:
        found = _with_model(target.model, asked, client_body, rest)
        if found is not None:
            edit.body, edit.places = found
    edit.members = parts.member
    if asked.has_priority:
        _remove_priority(edit, asked, client_body, attempt.at)
    if asks:
        _ask_for_usage(edit, asked, client_body, attempt.at)
    _name(edit, asked, attempt, abort)
    if edit.members:
        appended = append(edit.body or client_body, edit.members)
        if appended is None:  # The body is not a JSON object, so no member can be added.
            edit.rid = b""
        else:
            edit.body = appended
            edit.is_appended = True
            edit.asks = edit.asks or edit.asks_hidden
    return edit


def _remove_priority(
    edit: _Edit, asked: ClientRequest, client_body: list[bytes], replica: Replica
) -> None:
    removed = None
    if asked.body_bytes <= SCAN_ABOVE:
        removed = _without_priority(asked, client_body, edit.body, edit.places)
    if removed is not None:
        edit.body = removed
    elif not edit.members:
        # The body cannot be edited, so a member is appended. Engines use the last of two members
        # with the same name.
        edit.members = absent(replica)


def _ask_for_usage(
    edit: _Edit, asked: ClientRequest, client_body: list[bytes], replica: Replica
) -> None:
    """Let the body ask for token counts, in the way of the replica's engine."""
    ask = replica.descriptor.usage_ask
    access = replica.access
    if access is not None:
        ask = access.usage_ask(ask)
    if ask is None:
        return
    options = asked.stream_options
    if options is None:
        edit.members = _also(edit.members, ask.member)
        edit.asks_hidden = True
        return
    changed = asking(options, ask)
    if changed is None:
        return
    wanted, is_hidden = changed
    replacing = None
    if asked.body_bytes <= DECODE_UP_TO:
        replacing = replaced(edit.body or client_body, options, wanted)
    edit.asks_hidden = is_hidden
    if replacing is None:
        edit.members = _also(edit.members, b'"stream_options":' + wanted)
    else:
        edit.body, edit.asks = replacing, is_hidden


def _name(edit: _Edit, asked: ClientRequest, attempt: Attempt, abort: Abort | None) -> None:
    """Add the router's names for the attempt and its response, in place of the client's."""
    if abort is not None:
        aborter = asked.aborter
        if aborter is not None and aborter.aborts(attempt.at) and asked.path in abort.paths:
            edit.rid = b"%b-%02d" % (asked.name, attempt.index)
            edit.members = _also(edit.members, abort.member(edit.rid))
        elif asked.has_rid:
            edit.members = _also(edit.members, abort.nameless)
        if asked.parameters is not None:
            edit.members = _also(edit.members, asked.parameters)
    if asked.names_response:  # The engine would use the client's `request_id` as the response's id.
        own = b'"request_id":"resp_%b-%02d"' % (asked.name, attempt.index)
        edit.members = _also(edit.members, own)


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


def _priority_parts(
    dialect: Dialect, replica: Replica, driver: RequestDriver, asked: ClientRequest
) -> PriorityParts:
    """Return the parts of the request that send its priority to the replica."""
    request = driver.request
    number = request.urgency.number
    # A body larger than `SCAN_ABOVE` is not edited, so the client's `priority` may still be in it.
    must = asked.body_bytes > SCAN_ABOVE
    is_told = must or dialect.tells_normal
    if number == NORMAL and not (is_told and dialect.paths) and not dialect.header_paths:
        return NOTHING  # The usual case; the time of arrival is not needed.
    parts = priority_parts(
        dialect,
        keeps_numbers(replica),
        asked.path,
        request.urgency,
        asked.arrived_wall(request.arrived),
        request.rules.level_s,
        must,
    )
    if parts.drops and driver.context.metrics.priority_dropped(replica.id):
        log_event(
            logging.WARNING,
            "priorities are not forwarded to this replica",
            key=f"priority {replica.id}",
            replica=replica.id,
            engine=replica.engine,
            path=asked.path.decode("utf-8", "replace"),
        )
    return parts


def _may_ask_for_usage(request: Request, asked: ClientRequest) -> bool:
    """Whether the router may ask for the stream's token counts when the client did not.

    A request whose members could not be read is no stream.
    """
    return request.view.stream and request.rules.asks_for_usage and asked.path in PATHS
