"""Asks an engine for a stream's token counts if the client did not ask (`stream_options`).

The field is added only if the engine supports it, and only if the engine reports the counts in a
separate event, so that the event can be removed from the stream. (vLLM puts its
`system_fingerprint` into that event; `usage_tap.Closing` keeps it.) Options that already ask
for counts stay unchanged. The body is not encoded again: the value of `stream_options` is replaced,
or a member is added if the place of the value is not certain. Engines use the last of two members
with the same name. All other bytes are unchanged.

The functions are pure: bytes in, bytes out. Must never: guess the position of a field in a body.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage.usage_shapes import Asked
from router.fleet.engines.common.descriptor import UsageAsk
from router.intake.values import raw_flag_of

PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions"})

_NAME: Final = b'"stream_options"'
_KEY: Final = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*')
# Maximum bytes of a client's `stream_options` that are read, which takes about 1 ms.
_LONGEST: Final = 64 * 1024
# Maximum number of occurrences of `stream_options` in one body that are examined.
_TRIES: Final = 64
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_body = msgspec.json.Decoder(Asked).decode


def asking(asked: bytes, ask: UsageAsk) -> tuple[bytes, bool] | None:
    """Return the `stream_options` that make the engine report usage; `None`: they stay unchanged.

    `asked`: the client's `stream_options` as written. The second value is whether the client did
    not ask for the usage, so that the usage event must be removed from the stream. Only a literal
    `true` is left to the engine; all other values are read as engines read booleans. Options that
    are no object, or too long, are replaced as a whole.
    """
    try:
        options = None if len(asked) > _LONGEST else _members(asked)
    except NOT_JSON:
        options = None
    if options is None:
        return ask.options, True
    asks = _flag(options, "include_usage", ask.asks_by_default)
    always = _flag(options, "continuous_usage_stats", ask.is_continuous_by_default)
    if asks:
        given = options.get("include_usage")
        if given is None or bytes(given) == b"true":
            return None
    elif always and not ask.continuous_needs_usage:
        return None  # Every event contains the counts.
    elif always is not False:
        options["continuous_usage_stats"] = msgspec.Raw(b"false")
    options["include_usage"] = msgspec.Raw(b"true")
    return msgspec.json.encode(options), not asks


def _flag(options: dict[str, msgspec.Raw], name: str, default: bool) -> bool | None:
    """Return the value of an option. `None`: no engine reads the value as a boolean."""
    raw = options.get(name)
    if raw is None:
        return default
    return False if bytes(raw) == b"null" else raw_flag_of(raw)


def replaced(pieces: list[bytes], asked: bytes, options: bytes) -> list[bytes] | None:
    """Return the body with other `stream_options`; `None`: the place of the value is not certain.

    `pieces`: a JSON object. `asked`: its `stream_options` as written.
    """
    body = b"".join(pieces)
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
