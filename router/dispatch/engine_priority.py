"""How an engine is told a request's urgency: in which field, and what happens to the client's own.

The dialect of the engine (`fleet/engines`) says which paths have the field, writes the number, and
says whether a normal number may be left out. `replicas[].priority: none` leaves out all of them.

A client's own `priority` never passes: it is replaced where the dialect has the field, and removed
elsewhere. The router appends members, which costs a few bytes. Only a body that contains
`priority` is written anew from its raw top-level members, so that no duplicate remains; from a
large body the member is cut. A body too large to be edited gets an appended member: of duplicates,
the last counts. Where no number is due, this member has the value that the engine takes for an
absent one (`absent`). A compressed body stays as it is; no engine here reads one.

An engine that rejects the field is recognised by its words (`refuses`) and asked again without. If
that succeeds, the replica gets no more numbers. If it fails, something else was wrong: a client can
make an engine say anything.

Pure: bytes in, bytes out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.core.urgency import NORMAL, Urgency
from router.fleet.dialects import dialect_of_engine
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.engines.common.registry import DIALECTS, REFUSALS
from router.fleet.replica import Replica
from router.intake.body import EACH_UP_TO
from router.intake.members import MemberScan, Place


class Told:
    """What is to be done to a request for one replica."""

    __slots__ = ("drops", "header", "member", "number", "refusal")

    def __init__(
        self, member: bytes, header: bytes, drops: bool, refusal: int, number: bytes = b""
    ) -> None:
        self.member = member  # `"priority":7`; b"": nothing goes into the body
        self.header = header  # a line with its CRLF before it; b"": none
        self.drops = drops  # it is not normal, and the replica is not told
        self.refusal = refusal  # the status of an engine's answer that may refuse it; 0: none
        self.number = number  # as it stands in either


NOTHING: Final = Told(b"", b"", False, 0)
_DROPPED: Final = Told(b"", b"", True, 0)


def dialect_of(replica: Replica) -> Dialect:
    """The dialect in which a replica is told a priority; SILENT: it is told nothing."""
    if replica.refuses_priority:
        return SILENT
    configured = replica.config.priority
    if configured is not None:
        return DIALECTS.get(configured, SILENT)
    if replica.by_priority is False and replica.descriptor.tells_scheduling:
        return SILENT
    return dialect_of_engine(replica)


def keeps_numbers(replica: Replica) -> bool:
    """Whether an engine may keep every number that it is told. False: its metrics are off."""
    return replica.metrics_on is not False


def is_honoured(replica: Replica) -> bool | None:
    """Whether its engine goes by what it is told; None: it does not tell."""
    if dialect_of(replica) is SILENT:
        return False if replica.engine is not None or replica.config.priority else None
    return True if replica.config.priority is not None else replica.by_priority


def tell(
    dialect: Dialect,
    is_bounded: bool,
    path: bytes,
    urgency: Urgency,
    arrived: float,
    level_s: float,
    must: bool,
) -> Told:
    """What a replica of this dialect is told of a request to `path`, one of an engine's own.

    `arrived` is in seconds since 1970. `must`: write even what the engine takes for granted,
    because the body may contain another number.
    """
    number = urgency.number
    if path not in dialect.paths:
        if path in dialect.header_paths:
            word = dialect.write(number, arrived, level_s, False)
            return Told(b"", b"\r\n%b: %b" % (dialect.header, word), False, 0, word)
        return NOTHING if number == NORMAL else _DROPPED
    if number == NORMAL and not must and not dialect.tells_normal:
        return NOTHING
    word = dialect.write(number, arrived, level_s, is_bounded)
    return Told(b'"priority":' + word, b"", False, dialect.refusal, word)


def absent(replica: Replica) -> bytes:
    """A member that has the effect of an absent `priority` at the replica."""
    configured = replica.config.priority
    if configured is not None and configured in DIALECTS:
        return DIALECTS[configured].absent
    return dialect_of_engine(replica).absent


_NAME: Final = "priority"
_PRIORITY: Final = frozenset({_NAME})
_SPACE: Final = b" \t\r\n"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def without(body: list[bytes], places: list[Place] | None = None) -> list[bytes] | None:
    """The body less its `priority`, every other member as its client wrote it; of members with one
    name the last stays, which is the one that counts. None: it cannot be read.

    `places`: those of the body's members, `priority` among them, if a scan has found them already.
    """
    whole = body[0] if len(body) == 1 else b"".join(body)
    if places is not None:
        return _cut(whole, places)
    if len(whole) > EACH_UP_TO:
        scan = MemberScan(_PRIORITY)
        scan.feed(whole)
        return _cut(whole, scan.places) if scan.is_whole else None
    try:
        members = _members(whole)
    except NOT_JSON:
        return None
    members.pop(_NAME, None)
    return [_encode(members)]


def _cut(body: bytes, places: list[Place]) -> list[bytes]:
    """A large body less its `priority` members; every other byte is the client's."""
    kept: list[bytes] = []
    at = 0
    for place in places:
        if place.name != _NAME:
            continue
        kept.append(body[at : place.start])
        at = place.end
        if body[at : at + 1] == b",":
            at += 1
        else:  # the last member: the comma before it goes, too
            before = b"".join(kept).rstrip(_SPACE)
            kept = [before.removesuffix(b",")]
    kept.append(body[at:])
    return kept


_LOOK: Final = 16 * 1024  # bytes of an answer


def refuses(answer: bytes) -> bool:
    """Whether what an engine answered, with its status for that, says that it knows no priority."""
    return REFUSALS.search(answer, 0, _LOOK) is not None
