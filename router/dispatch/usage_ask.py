"""Asking an engine for a stream's token counts where its client did not (`stream_options`).

A field is added only for an engine that is known to know it, and only if the answer to it is an
event of its own, so that it can be taken out of the stream again. (One trace stays: vLLM puts its
`system_fingerprint` into the last event, so it goes with it.) What the client has asked for, and
what the engine would refuse, stays as it is. The body is not encoded anew: a member is added, or
the value of `stream_options` replaced, and every other byte is the client's.

Pure: bytes in, bytes out. Must never guess where in a body a field stands.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage_shapes import Asked


class Dialect(NamedTuple):
    """What an engine makes of `stream_options`."""

    options: bytes  # that ask for one event of usage and change nothing else
    asks_by_default: bool  # an object without `include_usage` asks for it
    # `continuous_usage_stats` counts only together with `include_usage`.
    continuous_needs_usage: bool


# vLLM: StreamOptions (include_usage: True, continuous_usage_stats: False), should_include_usage.
# SGLang: the same with False and False, and the two stand apart. TensorRT-LLM: True and True.
# TGI puts its counts into the last content event, which cannot be taken out. llama.cpp would move
# its `timings` from the last content event into the one that is taken out; those tell the counts
# unasked (`NEEDLES`).
DIALECTS: Final = {
    "vllm": Dialect(b'{"include_usage":true}', True, True),
    "sglang": Dialect(b'{"include_usage":true}', False, False),
    "trtllm": Dialect(b'{"include_usage":true,"continuous_usage_stats":false}', True, True),
}
PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions"})

# What asks an engine where the client's body has no `stream_options`.
MEMBERS: Final = {
    engine: b'"stream_options":' + dialect.options for engine, dialect in DIALECTS.items()
}

_NAME: Final = b'"stream_options"'
_KEY: Final = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*')
_LONGEST: Final = 4096  # bytes of a client's `stream_options`; the engine judges longer ones
_TRIES: Final = 64  # places of that name in one body
_NO: Final = (None, b"false", b"null")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_body = msgspec.json.Decoder(Asked).decode


def replaced(body: list[bytes], asked: bytes, engine: str | None) -> list[bytes] | None:
    """The body of a streaming request in pieces, made to ask `engine` for its usage.

    `body` is a JSON object; `asked` is its `stream_options` as written. A body without the field
    gets one of MEMBERS appended instead. None: the body stays as it is, because the engine is not
    known to know the field, the client asks itself, or the engine must judge what it wrote.
    """
    options = _options(asked, engine) if body else None
    return None if options is None else _replace(b"".join(body), asked, options)


def member(asked: bytes, engine: str | None) -> bytes:
    """The member that makes a body with the `stream_options` `asked` ask `engine` for its usage, if
    it is appended: of two members with one name, the last counts. For bodies that are too large to
    be decoded, and so for `replaced`. b"": the body stays as it is, for the same reasons."""
    options = _options(asked, engine)
    return b"" if options is None else b'"stream_options":' + options


def _options(asked: bytes, engine: str | None) -> bytes | None:
    """What `stream_options` becomes for an engine; None: it stays as it is."""
    dialect = DIALECTS.get(engine or "")
    return None if dialect is None else _merge(asked, dialect)


def _merge(asked: bytes, dialect: Dialect) -> bytes | None:
    """The client's own options and the question; None if it asks already or is not understood."""
    if asked == b"null":
        return dialect.options
    if len(asked) > _LONGEST:
        return None
    try:
        options = _members(asked)
    except NOT_JSON:
        return None
    usage = options.get("include_usage")
    if usage is None:
        if dialect.asks_by_default:
            return None
    elif bytes(usage) not in _NO:
        return None
    given = options.get("continuous_usage_stats")
    continuous = None if given is None else bytes(given)
    if continuous not in _NO and not (continuous == b"true" and dialect.continuous_needs_usage):
        return None  # every event tells the counts, or the engine will refuse it
    options["include_usage"] = msgspec.Raw(b"true")
    if continuous == b"true" or (continuous is None and b"continuous" in dialect.options):
        options["continuous_usage_stats"] = msgspec.Raw(b"false")
    return msgspec.json.encode(options)


def _replace(body: bytes, asked: bytes, options: bytes) -> list[bytes] | None:
    """Other `stream_options` in their place; None where the place is not beyond doubt."""
    at = _place(body, asked)
    if at < 0:
        return None
    changed = body[:at] + options + body[at + len(asked) :]
    try:
        found = _body(changed).stream_options
    except NOT_JSON:
        return None
    return [changed] if bytes(found) == options else None  # it was another object's member


def _place(body: bytes, asked: bytes) -> int:
    """Where the value of the last member of that name and value begins; below 0: nowhere. Of two
    members with one name, the last counts."""
    end = len(body)
    for _ in range(_TRIES):
        key = body.rfind(_NAME, 0, end)
        if key < 0:
            break
        found = _KEY.match(body, key)
        if found is not None and body.startswith(asked, found.end()):
            return found.end()
        end = key
    return -1
