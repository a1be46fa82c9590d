"""Writes the client's model name back into a response, on its way to the client.

A model that has several names answers with the name that the replica knows (`models.*.restore_name`
in the configuration). The bytes `"model":` outside of a JSON string are a member's name, and inside
a string the quotes are escaped. So a search for these bytes finds exactly the members, and nothing
is decoded. A read without these bytes costs one search.

The functions are pure: bytes in, bytes out. Must never: change another byte, or hold back more than
`_HELD` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

_MEMBER: Final = b'"model":'
# Maximum bytes of an incomplete member that are held until its end comes. A longer one is relayed.
_HELD: Final = 1024
_SPACE: Final = 0x20
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_NEEDS_MORE: Final = -1
_NOT_TEXT: Final = -2
_encode = msgspec.json.Encoder().encode


class RestoredName:
    """Writes a model name into the members `model` of one response, whose bytes come in pieces."""

    __slots__ = ("_held", "_look", "_value")

    def __init__(self, name: str) -> None:
        self._value = _encode(name)
        self._held = b""  # The beginning of a member at the end of the last piece.
        self._look: Callable[[bytes], bytes] | None = None

    def after(self, look: Callable[[bytes], bytes] | None) -> Callable[[bytes], bytes]:
        """Return a function that first calls `look` with a piece, and then writes the name."""
        self._look = look
        return self.feed if look is None else self._feed_after

    def _feed_after(self, data: bytes) -> bytes:
        look = self._look
        assert look is not None
        return self.feed(look(data))

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to relay, given the next piece. This runs for every token."""
        if self._held:
            data = self._held + data
            self._held = b""
        at = data.find(_MEMBER)
        if at < 0 and data.endswith(b"\n"):
            return data
        return self._replace(data, at)

    def _replace(self, data: bytes, at: int) -> bytes:
        parts: list[bytes] = []
        done = 0  # The index up to which the bytes are in `parts`.
        while at >= 0:
            start = at + len(_MEMBER)
            if start < len(data) and data[start] == _SPACE:
                start += 1
            end = _end_of_text(data, start)
            if end == _NEEDS_MORE and len(data) - at <= _HELD:
                parts.append(data[done:at])
                self._held = data[at:]
                return b"".join(parts)
            if end >= 0:
                parts.append(data[done:start])
                parts.append(self._value)
                done = end
                start = end
            at = data.find(_MEMBER, start)
        rest = data[done:]
        held = _begun(rest)
        if held:
            self._held = rest[-held:]
            rest = rest[:-held]
        parts.append(rest)
        return b"".join(parts)

    def flush(self) -> bytes:
        """Return the bytes that are held at the end of the response."""
        held, self._held = self._held, b""
        return held


def _end_of_text(data: bytes, start: int) -> int:
    """Return the index after the JSON string that begins at `start`.

    Returns `_NEEDS_MORE` if its end has not come, and `_NOT_TEXT` if no string begins there.
    """
    size = len(data)
    if start >= size:
        return _NEEDS_MORE
    if data[start] != _QUOTE:
        return _NOT_TEXT
    at = start + 1
    while True:
        end = data.find(b'"', at)
        if end < 0:
            return _NEEDS_MORE
        run = end
        while run > at and data[run - 1] == _BACKSLASH:
            run -= 1
        if (end - run) % 2 == 0:
            return end + 1
        at = end + 1


def _begun(data: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of the member's name."""
    size = min(len(_MEMBER) - 1, len(data))
    while size and not _MEMBER.startswith(data[len(data) - size :]):
        size -= 1
    return size
