"""What a replica's engine is told of a request's urgency: in its own words, and where they stand.

    dialect           number                                          an absent one is
    vllm              whole, lower first; normal 0, a class 1000      0: normal is not written
    sglang            whole, higher first; normal 0, a class 100      the worst: always written
    sglang-low-first  the same, negated                               the worst: always written
    trtllm            0 to 1, higher first; normal 0.5, a class 0.2   0.5: normal is not written
    none              -                                               -

Two rules hold in each. More urgent here is never less urgent there. And SGLang, where a newcomer
displaces a running request that is more than 10 worse (its default threshold), keeps a class
together: numbers of one class differ by 8 at most, those of two classes by 92 at least.

A client's own `priority` never passes as it came: it is replaced where the dialect has the field,
and taken out where not. Members are appended, which costs a few bytes; only where the field is
there already, the top level is written anew from its raw members, so that of several members with
one name none is left. A body too large to have been looked at gets the appended one in any case: of
two the last counts. A compressed body stays as it is; no engine here reads one.

An engine that refuses the field is found out by its words (`refuses`) and asked again without. If
that goes well it is spared it from then on; if not, it was something else (a client can make an
engine say anything).

Pure: bytes in, bytes out.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from router.core.urgency import CLASSES, NORMAL, Urgency, class_of
from router.dispatch.body_edit import append
from router.fleet.replica import Replica

NONE: Final = "none"
# Where nothing is configured: what the engine understands. vLLM and SGLang take no notice of the
# field unless they schedule by it; TensorRT-LLM servers before 1.3 refuse it, and are learned.
BY_ENGINE: Final[dict[str | None, str]] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}

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

_VLLM: Final = 1000
_SGLANG: Final = 100
_SGLANG_WITHIN: Final = 9  # of half a class; the threshold is 10 for the whole of it
_TRTLLM: Final = 0.2


def written(dialect: str, number: float) -> bytes | None:
    """An urgency as the dialect writes it; None: it has no word for it."""
    if dialect == "vllm":
        return b"%d" % round((number - NORMAL) * _VLLM)
    if dialect == "sglang":
        return b"%d" % -_sglang(number)
    if dialect == "sglang-low-first":
        return b"%d" % _sglang(number)
    if dialect == "trtllm":
        share = 0.5 + (NORMAL - number) * _TRTLLM
        return b"%.4f" % min(1.0, max(0.0, share))
    return None


def _sglang(number: float) -> int:
    """Lower first."""
    rank = class_of(number)
    return (rank - NORMAL) * _SGLANG + round((number - rank) * _SGLANG_WITHIN)


_REFUSAL: Final = {"vllm": 400, "sglang": 503, "sglang-low-first": 503, "trtllm": 400}
# The usual ones: dialect -> by class.
_USUAL: Final = {
    dialect: [written(dialect, float(rank)) for rank in range(len(CLASSES))] for dialect in PATHS
}


class Told:
    """What is to be done to a request for one replica."""

    __slots__ = ("drops", "header", "member", "refusal")

    def __init__(self, member: bytes, header: bytes, drops: bool, refusal: int) -> None:
        self.member = member  # `"priority":-1000`; b"": nothing goes into the body
        self.header = header  # a line with its CRLF before it; b"": none
        self.drops = drops  # it is not normal, and the replica is not told
        self.refusal = refusal  # the status of an engine's answer that may refuse it; 0: none


NOTHING: Final = Told(b"", b"", False, 0)
_DROPPED: Final = Told(b"", b"", True, 0)


def dialect_of(replica: Replica) -> str:
    """How a replica is told a priority: as configured, else as its engine has it."""
    if replica.refuses_priority:
        return NONE
    configured = replica.config.priority
    if configured is not None:
        return configured
    dialect = BY_ENGINE.get(replica.engine, NONE)
    if dialect == "sglang":
        if replica.by_priority is False:
            return NONE
        if replica.low_first:
            return "sglang-low-first"
    return dialect


def is_honoured(replica: Replica) -> bool | None:
    """Whether its engine goes by what it is told; None: it does not tell."""
    if dialect_of(replica) == NONE:
        return False if replica.engine is not None or replica.config.priority else None
    return True if replica.config.priority is not None else replica.by_priority


def tell(dialect: str, path: bytes, urgency: Urgency, must: bool) -> Told:
    """What a replica of this dialect is told of a request to `path`, one of an engine's own.

    `must`: even what goes without saying, because the request may say something else itself.
    """
    number = urgency.number
    if path not in PATHS[dialect]:
        if dialect == "vllm" and path in _HEADER_PATHS:
            if number == NORMAL:
                return NOTHING  # a client's own header does not pass
            word = written(dialect, number)
            assert word is not None
            return Told(b"", b"\r\n%b: %b" % (HEADER, word), False, 0)
        return NOTHING if number == NORMAL else _DROPPED
    if number == NORMAL and not must and dialect in ("vllm", "trtllm"):
        return NOTHING
    rank = urgency.rank
    usual = _USUAL[dialect][rank] if rank == number else written(dialect, number)
    assert usual is not None
    return Told(b'"priority":' + usual, b"", False, _REFUSAL[dialect])


def write(body: list[bytes], member: bytes, is_there: bool) -> list[bytes] | None:
    """The body with `member` as its only priority; b"": without any. None: it stays as it is.

    `is_there`: it has a `priority` of its own.
    """
    if not is_there:
        return append(body, member) if member else None
    clean = without(body)
    if clean is None:
        return append(body, member) if member else None
    return append(clean, member) if member else clean


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def without(body: list[bytes]) -> list[bytes] | None:
    """The body less its `priority`, every other member as its client wrote it; of members with one
    name the last stays, which is the one that counts. None: it cannot be read."""
    try:
        members = _members(body[0] if len(body) == 1 else b"".join(body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    members.pop("priority", None)
    return [_encode(members)]


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
