"""Decodes single members of a request's body that were kept as raw JSON.

Must never: raise for an invalid value.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.flags import flag_of
from router.core.session_names import MAX_SESSION, SESSION_MEMBERS
from router.core.unreadable import NOT_JSON
from router.intake.fields import Fields
from router.intake.routes import BOTH_MEMBERS, MAX_OUTPUT_TOKENS, NO_MEMBER, Route
from router.intake.stretch import Stretch

NULL: Final = msgspec.Raw(b"null")
# Maximum bytes of a member with a session inside, which has a few short members of its own.
_SESSION_NEST: Final = 4096
_decode_any: Final = msgspec.json.Decoder().decode


def is_given(raw: msgspec.Raw | Stretch | None) -> bool:
    """Return whether a member of the body is present and not null."""
    return raw is not None and raw != NULL


def opening_of(raw: msgspec.Raw | Stretch) -> int:
    """Return the first byte of a raw value."""
    return raw.cut(0, 1)[0] if isinstance(raw, Stretch) else memoryview(raw)[0]


def bytes_of(raw: msgspec.Raw | Stretch) -> bytes:
    """Return a copy of the bytes of a raw value."""
    return raw.whole() if isinstance(raw, Stretch) else bytes(raw)


def value_of(raw: msgspec.Raw | None) -> object:
    """Return the decoded value of a member; `...` if the value cannot be decoded."""
    if raw is None:
        return None
    try:
        return _decode_any(raw)
    except NOT_JSON:
        return ...


_LONG_FLAG: Final = 64  # maximum bytes of a raw value that is read as a boolean


def raw_flag_of(raw: msgspec.Raw) -> bool | None:
    """Return a raw value as the engines read it as a boolean; None: it is no boolean."""
    return flag_of(value_of(raw)) if len(raw) <= _LONG_FLAG else None


def session_of(fields: Fields) -> str | None:
    """Return the key of the conversation that the request belongs to; None if it has none.

    It is the first usable string of the members in `SESSION_MEMBERS`.
    """
    others = fields.others
    if others is None:
        return None  # The usual case: reading the table takes 1,400 instructions.
    for name, inside, _ in SESSION_MEMBERS:
        raw = others.get(name)
        if raw is not None:
            key = _session(raw, inside)
            if key is not None:
                return key
    return None


def _session(raw: msgspec.Raw, inside: str) -> str | None:
    # A character of a JSON string takes at most six bytes; two more bytes are the quotes.
    if len(raw) > (_SESSION_NEST if inside else 6 * MAX_SESSION + 2):
        return None
    key = value_of(raw)
    if inside:
        key = key.get(inside) if isinstance(key, dict) else None
    return key if isinstance(key, str) and 0 < len(key) <= MAX_SESSION else None


def output_tokens_of(fields: Fields, route: Route) -> int | None:
    """Return the client's limit of output tokens; `None`: no usable limit, or it is not known.

    Only the members that engines read on the route count. If there are two of them, an engine may
    read either, so the larger limit is returned.
    """
    members = route.limited_by
    if members == NO_MEMBER:
        return None
    if members == MAX_OUTPUT_TOKENS:
        limit = fields.max_output_tokens
    else:
        limit = fields.max_tokens
        if members == BOTH_MEMBERS:
            other = fields.max_completion_tokens
            if limit is None or (other is not None and other > limit):
                limit = other
    return limit if limit is not None and 0 < limit < 1 << 31 else None
