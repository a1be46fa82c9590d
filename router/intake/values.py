"""Decodes single members of a request's body that were kept as raw JSON.

This is a separate file because it is compiled; the structs in `fields` are already C code.

Must never: raise for an invalid value.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.intake.fields import MAX_SESSION, Fields
from router.intake.stretch import Stretch

NULL: Final = msgspec.Raw(b"null")
_decode_any: Final = msgspec.json.Decoder().decode


def is_given(raw: msgspec.Raw | Stretch | None) -> bool:
    """Return whether a field is present and not null."""
    return raw is not None and raw != NULL


def opening_of(raw: msgspec.Raw | Stretch) -> int:
    """Return the first byte of the raw value."""
    return raw.cut(0, 1)[0] if isinstance(raw, Stretch) else memoryview(raw)[0]


def bytes_of(raw: msgspec.Raw | Stretch) -> bytes:
    """Return a copy of the raw value."""
    return raw.whole() if isinstance(raw, Stretch) else bytes(raw)


def value_of(raw: msgspec.Raw | None) -> object:
    """Return the decoded member; `...` if it is present but unusable."""
    if raw is None:
        return None
    try:
        return _decode_any(raw)
    except NOT_JSON:
        return ...


def session_of(fields: Fields) -> str | None:
    """Return the conversation key of the request: the first of its fields that is a usable
    string.
    """
    key = _session(fields.session_id)
    if key is None:
        key = _session(fields.prompt_cache_key)
    return _session(fields.user) if key is None else key


def _session(raw: msgspec.Raw | None) -> str | None:
    # One character takes at most six bytes of JSON; the two other bytes are the quotes.
    if raw is None or not 2 < len(raw) <= 6 * MAX_SESSION + 2:
        return None
    key = value_of(raw)
    return key if isinstance(key, str) and 0 < len(key) <= MAX_SESSION else None


def output_tokens_of(fields: Fields) -> int | None:
    """Return the client's limit of output tokens, whatever its field name; `None` if there is no
    usable one.
    """
    # The fields are read one after the other: reading a field costs more than the comparisons.
    most: int | None = fields.max_completion_tokens
    if _is_usable(most):
        return most
    most = fields.max_tokens
    if _is_usable(most):
        return most
    most = fields.max_output_tokens
    return most if _is_usable(most) else None


def _is_usable(most: int | None) -> bool:
    return most is not None and 0 < most < 1 << 31
