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
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage_shapes import Asked
from router.fleet.engines.common.descriptor import UsageAsk

PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions"})

_NAME: Final = b'"stream_options"'
_KEY: Final = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*')
_LONGEST: Final = 4096  # bytes of a client's `stream_options`; the engine judges longer ones
_TRIES: Final = 64  # places of that name in one body
_NO: Final = (None, b"false", b"null")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_body = msgspec.json.Decoder(Asked).decode


def replaced(body: list[bytes], asked: bytes, ask: UsageAsk | None) -> list[bytes] | None:
    """The body of a streaming request in pieces, made to ask an engine for its usage.

    `body` is a JSON object; `asked` is its `stream_options` as written. A body without the field
    gets `UsageAsk.member` appended instead. None: the body stays as it is, because the engine is
    not known to know the field, the client asks itself, or the engine must judge what it wrote.
    """
    options = _options(asked, ask) if body else None
    return None if options is None else _replace(b"".join(body), asked, options)


def member(asked: bytes, ask: UsageAsk | None) -> bytes:
    """The member that makes a body with the `stream_options` `asked` ask an engine for its usage,
    if it is appended: of two members with one name, the last counts. For bodies that are too large
    to be decoded, and so for `replaced`. b"": the body stays as it is, for the same reasons."""
    options = _options(asked, ask)
    return b"" if options is None else b'"stream_options":' + options


def _options(asked: bytes, ask: UsageAsk | None) -> bytes | None:
    """What `stream_options` becomes for an engine; None: it stays as it is."""
    return None if ask is None else _merge(asked, ask)


def _merge(asked: bytes, ask: UsageAsk) -> bytes | None:
    """The client's own options and the question; None if it asks already or is not understood."""
    if asked == b"null":
        return ask.options
    if len(asked) > _LONGEST:
        return None
    try:
        options = _members(asked)
    except NOT_JSON:
        return None
    usage = options.get("include_usage")
    if usage is None:
        if ask.asks_by_default:
            return None
    elif bytes(usage) not in _NO:
        return None
    given = options.get("continuous_usage_stats")
    continuous = None if given is None else bytes(given)
    if continuous not in _NO and not (continuous == b"true" and ask.continuous_needs_usage):
        return None  # every event tells the counts, or the engine will refuse it
    options["include_usage"] = msgspec.Raw(b"true")
    if continuous == b"true" or (continuous is None and b"continuous" in ask.options):
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
