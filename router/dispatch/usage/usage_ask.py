"""Asks an engine for a stream's token counts if the client did not ask (`stream_options`).

The field is added only if the engine is known to support it, and only if the engine reports the
counts in a separate event, so that the event can be removed from the stream. (vLLM puts its
`system_fingerprint` into that event; `attempts/fingerprint.py` keeps it.) Options that already ask
for counts, and options that the engine would refuse, stay unchanged. The body is not encoded again:
a member is added, or the value of `stream_options` is replaced. All other bytes are unchanged.

The functions are pure: bytes in, bytes out. Must never: guess the position of a field in a body.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage.usage_shapes import Asked
from router.fleet.engines.common.descriptor import UsageAsk

PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions"})

_NAME: Final = b'"stream_options"'
_KEY: Final = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*')
# Maximum bytes of a client's `stream_options` that are read; a longer value stays unchanged.
_LONGEST: Final = 4096
# Maximum number of occurrences of `stream_options` in one body that are examined.
_TRIES: Final = 64
_NO: Final = (None, b"false", b"null")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_body = msgspec.json.Decoder(Asked).decode


def replaced(body: list[bytes], asked: bytes, ask: UsageAsk | None) -> list[bytes] | None:
    """Return the body of a streaming request, in pieces, that asks the engine for usage.

    `body`: a JSON object. `asked`: the `stream_options` of the body as written. (To a body without
    the field, the caller appends `UsageAsk.member` instead.) Returns `None` if the body must stay
    unchanged: the engine is not known to support the field, the client itself asks for usage, or
    the client's options are invalid.
    """
    options = _options(asked, ask) if body else None
    return None if options is None else _replace(b"".join(body), asked, options)


def member(asked: bytes, ask: UsageAsk | None) -> bytes:
    """Return a member that asks for usage when it is appended to a body with `stream_options`.

    `asked`: the `stream_options` of the body. Engines use the last of two members with the same
    name. The member is for bodies that are too large to be decoded, for which `replaced` cannot be
    used. Returns b"" if the body must stay unchanged, for the reasons that `replaced` names.
    """
    options = _options(asked, ask)
    return b"" if options is None else b'"stream_options":' + options


def _options(asked: bytes, ask: UsageAsk | None) -> bytes | None:
    """Return the new value of `stream_options` for an engine; `None`: the value stays."""
    return None if ask is None else _merge(asked, ask)


def _merge(asked: bytes, ask: UsageAsk) -> bytes | None:
    """Return the client's options with the request for usage.

    Returns `None` if the client's options already ask for usage, or are invalid.
    """
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
        # With these options, every event contains the counts, or the engine refuses the options.
        return None
    options["include_usage"] = msgspec.Raw(b"true")
    if continuous == b"true" or (continuous is None and b"continuous" in ask.options):
        options["continuous_usage_stats"] = msgspec.Raw(b"false")
    return msgspec.json.encode(options)


def _replace(body: bytes, asked: bytes, options: bytes) -> list[bytes] | None:
    """Replace the value of `stream_options`.

    Returns `None` if the position of the value is not certain.
    """
    at = _place(body, asked)
    if at < 0:
        return None
    changed = body[:at] + options + body[at + len(asked) :]
    try:
        found = _body(changed).stream_options
    except NOT_JSON:
        return None
    # If the top-level value has not changed, the replaced `stream_options` belonged to a nested
    # object.
    return [changed] if bytes(found) == options else None


def _place(body: bytes, asked: bytes) -> int:
    """Return where the value of the last `stream_options` with this value begins; below 0: there is
    no such member.

    The last member is used, because engines use the last of several members with the same name.
    """
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
