"""How an engine is told a request's urgency: in which field, and what happens to the client's own.

The number is `engine_numbers`'. It is written

- to vLLM and SGLang always. An absent number is 0 for vLLM, which is more urgent than every virtual
  deadline, and the worst possible one for SGLang. vLLM does not report whether it schedules by
  priority, and ignores the number if it does not; `replicas[].priority: none` leaves it out;
- to TensorRT-LLM where it is not 0.5, because servers before 1.3 reject the field.

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

import re
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.core.urgency import NORMAL, Urgency
from router.dispatch.engine_numbers import number_for
from router.fleet.dialects import NONE, UNKNOWN, spoken
from router.fleet.replica import Replica
from router.intake.body import EACH_UP_TO
from router.intake.members import MemberScan, Place

_CHAT: Final = (b"/v1/chat/completions", b"/v1/completions")
# The paths whose bodies have the field.
_PATHS_VLLM: Final = frozenset(
    {
        *_CHAT,
        b"/v1/responses",
        b"/v1/embeddings",
        b"/pooling",
        b"/classify",
        b"/score",
        b"/v1/score",
        b"/rerank",
        b"/v1/rerank",
        b"/v2/rerank",
        b"/inference/v1/generate",
    }
)
_PATHS_SGLANG: Final = frozenset(
    {*_CHAT, b"/v1/embeddings", b"/classify", b"/v1/classify", b"/generate", b"/encode"}
)
PATHS: Final[dict[str, frozenset[bytes]]] = {
    "vllm": _PATHS_VLLM,
    "sglang": _PATHS_SGLANG,
    "sglang-low-first": _PATHS_SGLANG,
    "trtllm": frozenset(_CHAT),
    NONE: frozenset(),
}
# vLLM takes the number of a /v1/messages request from a header only (from about 0.27 on).
HEADER: Final = b"x-vllm-priority"
_HEADER_PATHS: Final = frozenset({b"/v1/messages"})

_REFUSAL: Final = {"vllm": 400, "sglang": 503, "sglang-low-first": 503, "trtllm": 400}


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


def dialect_of(replica: Replica) -> str:
    """The dialect in which a replica is told a priority; NONE: it is told nothing."""
    if replica.refuses_priority:
        return NONE
    configured = replica.config.priority
    if configured is not None:
        return configured
    if replica.by_priority is False and replica.engine == "sglang":
        return NONE
    dialect = spoken(replica)
    return NONE if dialect == UNKNOWN else dialect


def keeps_numbers(replica: Replica) -> bool:
    """Whether an SGLang keeps every number that it is told. False: its metrics are off."""
    return replica.metrics_on is not False


def is_honoured(replica: Replica) -> bool | None:
    """Whether its engine goes by what it is told; None: it does not tell."""
    if dialect_of(replica) == NONE:
        return False if replica.engine is not None or replica.config.priority else None
    return True if replica.config.priority is not None else replica.by_priority


def tell(
    dialect: str,
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
    if path not in PATHS[dialect]:
        if dialect == "vllm" and path in _HEADER_PATHS:
            word = number_for(dialect, False, number, arrived, level_s)
            return Told(b"", b"\r\n%b: %b" % (HEADER, word), False, 0, word)
        return NOTHING if number == NORMAL else _DROPPED
    if number == NORMAL and not must and dialect == "trtllm":
        return NOTHING
    word = number_for(dialect, is_bounded, number, arrived, level_s)
    return Told(b'"priority":' + word, b"", False, _REFUSAL[dialect], word)


# What an engine takes for an absent `priority`: vLLM's field is an int, TensorRT-LLM's a float.
_ABSENT: Final = {"vllm": b'"priority":0', "trtllm": b'"priority":0.5'}


def absent(replica: Replica) -> bytes:
    """A member that has the effect of an absent `priority` at the replica."""
    return _ABSENT.get(spoken(replica), b'"priority":null')


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


# TensorRT-LLM before 1.3, vLLM's V0 and its first V1, SGLang --abort-on-priority-when-disabled.
_REFUSALS: Final = re.compile(
    rb"(?is)(?:extra inputs|extra_forbidden).{0,200}(?:\b|\\n)priority\b"
    rb"|(?:\b|\\n)priority\b.{0,200}(?:extra inputs|extra_forbidden)"
    rb"|priority scheduling is not enabled|does not support priority"
    rb"|using priority is disabled"
)
_LOOK: Final = 16 * 1024  # bytes of an answer


def refuses(answer: bytes) -> bool:
    """Whether what an engine answered, with its status for that, says that it knows no priority."""
    return _REFUSALS.search(answer, 0, _LOOK) is not None
