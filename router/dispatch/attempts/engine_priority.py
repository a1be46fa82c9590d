"""Sends a request's priority to an engine, and handles the client's own `priority` field.

The engine's dialect (`fleet/engines`) defines which paths have the field, how a priority number is
written, and whether the number of the normal priority may be left out. With
`replicas[].priority: none` the replica gets no priority numbers.

A client's own `priority` is never forwarded. The member is replaced if the engine's dialect has the
field, and removed otherwise:

- Usually the router appends a `priority` member, which costs a few bytes.
- A body that contains `priority` is written again from its raw top-level members, so that no
  duplicate remains. In a large body, only the bytes of the member are removed.
- A body that cannot be edited (too large, or too many members) gets an appended member, because
  engines use the last of several members with the same name. If no number is needed, this member
  has the value that the engine treats as absent (`absent`).
- A compressed body is not changed; no supported engine reads compressed bodies.

An engine that rejects the field is recognised by its error text (`refuses`), and gets the request
again without the field. If the second attempt succeeds, the replica gets no more priority numbers.
If the second attempt fails, the error had another cause: a client can provoke any error text.

The meaning of a client's number depends on the engines that serve the model. `IgnoredNumbers` logs
one warning for each model whose clients send numbers that are ignored.

The functions are pure: bytes in, bytes out.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.core.urgency import NORMAL, Urgency
from router.fleet.dialects import UNKNOWN, dialect_of_engine
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.engines.common.registry import DIALECTS, REFUSALS
from router.fleet.replica import Replica
from router.intake.body import EACH_UP_TO
from router.intake.members import MemberScan, Place, without_members
from router.observe.events import log_event


class PriorityParts:
    """The changes to a request by which its priority is sent to one replica."""

    __slots__ = ("drops", "header", "member", "number", "refusal")

    def __init__(
        self, member: bytes, header: bytes, drops: bool, refusal: int, number: bytes = b""
    ) -> None:
        self.member = member  # A member such as `"priority":7`; b"": nothing is added to the body.
        # A header line with the priority, with a CRLF before it; b"": no header line.
        self.header = header
        # The priority is not normal, but the replica does not get a priority number.
        self.drops = drops
        # The status with which the engine may reject the `priority` field; 0: no such status.
        self.refusal = refusal
        self.number = number  # The priority number as written in the body or the header.


NOTHING: Final = PriorityParts(b"", b"", False, 0)
_DROPPED: Final = PriorityParts(b"", b"", True, 0)


def dialect_of(replica: Replica) -> Dialect:
    """Return the dialect in which priorities are sent to the replica; SILENT: none are sent."""
    if replica.errors.refuses_priority:
        return SILENT
    configured = replica.config.priority
    if configured is not None:
        return DIALECTS.get(configured, SILENT)
    if replica.endpoint.by_priority is False and replica.descriptor.tells_scheduling:
        return SILENT
    return dialect_of_engine(replica)


def keeps_numbers(replica: Replica) -> bool:
    """Whether the engine may store every number that it receives, as a label of its metrics."""
    return replica.endpoint.metrics_on is not False


def is_honoured(replica: Replica) -> bool | None:
    """Whether the engine follows priorities; `None`: the engine does not report whether it does."""
    if dialect_of(replica) is SILENT:
        return False if replica.engine is not None or replica.config.priority else None
    return True if replica.config.priority is not None else replica.endpoint.by_priority


def priority_parts(
    dialect: Dialect,
    is_bounded: bool,
    path: bytes,
    urgency: Urgency,
    arrived: float,
    level_s: float,
    must: bool,
) -> PriorityParts:
    """Return how the priority of a request to `path` is sent in this dialect.

    `arrived` is in seconds since 1970. `must`: write the number even if the engine assumes it by
    default, because the body may contain another number.
    """
    number = urgency.number
    if path not in dialect.paths:
        if path in dialect.header_paths:
            word = dialect.write(number, arrived, level_s, False)
            return PriorityParts(b"", b"\r\n%b: %b" % (dialect.header, word), False, 0, word)
        return NOTHING if number == NORMAL else _DROPPED
    if number == NORMAL and not must and not dialect.tells_normal:
        return NOTHING
    word = dialect.write(number, arrived, level_s, is_bounded)
    return PriorityParts(b'"priority":' + word, b"", False, dialect.refusal, word)


def absent(replica: Replica) -> bytes:
    """Return a `priority` member with the same effect at the replica as no such member."""
    configured = replica.config.priority
    if configured is not None and configured in DIALECTS:
        return DIALECTS[configured].absent
    return dialect_of_engine(replica).absent


_NAME: Final = "priority"
_PRIORITY: Final = frozenset({_NAME})
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def without(body: list[bytes], places: list[Place] | None = None) -> list[bytes] | None:
    """Return the body without its `priority`; `None` if the body cannot be read.

    All members except `priority` are unchanged. Of several members with the same name, only the
    last remains, because parsers use the last one.

    `places`: the positions of the body's members, including `priority`, if a scan has found them.
    """
    whole = body[0] if len(body) == 1 else b"".join(body)
    if places is not None:
        return without_members(whole, [place for place in places if place.name == _NAME])
    if len(whole) <= EACH_UP_TO:
        try:
            members = _members(whole)
        except NOT_JSON:
            pass  # A name with half a surrogate pair, which engines accept and the scan skips.
        else:
            members.pop(_NAME, None)
            return [_encode(members)]
    scan = MemberScan(_PRIORITY)
    scan.feed(whole)
    return without_members(whole, scan.places) if scan.is_whole else None


_LOOK: Final = 16 * 1024  # Maximum bytes of an engine's error answer that are searched.


def refuses(answer: bytes) -> bool:
    """Whether the text of an engine's error answer says that it rejects the `priority` field."""
    return REFUSALS.search(answer, 0, _LOOK) is not None


PATIENCE_S: Final = 60.0  # Seconds within which the engines of a pool are usually detected.


class IgnoredNumbers:
    """Logs one warning for each model whose clients send priority numbers that are ignored.

    It does not warn while the engines of the model may still be detected, and keeps only names of
    models that the fleet serves.
    """

    __slots__ = ("_since", "_warned")

    def __init__(self) -> None:
        # For each model, the time of the first ignored number while the pool's dialect was unknown.
        self._since: dict[str, float] = {}
        self._warned: set[str] = set()

    def ignored(self, model: str | None, models: Container[str], dialect: str, now: float) -> None:
        """Handle a client's priority number that is ignored. Logs the warning if it is due.

        `models`: the models that the fleet serves. `dialect`: the pool's priority dialect.
        """
        name = model if model is not None and model in models else ""
        if name in self._warned:
            return
        if dialect == UNKNOWN and now - self._since.setdefault(name, now) < PATIENCE_S:
            return
        self._since.pop(name, None)
        self._warned.add(name)
        log_event(
            logging.WARNING,
            "priority numbers in request bodies are ignored: set priority.dialect",
            key=f"ignored {name}",
            model=name or None,
            dialect=dialect,
        )
