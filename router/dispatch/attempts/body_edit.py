"""Adds members to a client's JSON object without encoding the object again.

The new members are added at the end of the object. If an object has several members with the same
name, JSON parsers use the last one (msgspec, orjson, Python's json and so pydantic, serde for
maps). So a member is replaced by adding it again. All other bytes are unchanged. A body is a list
of pieces. Only the last piece is copied, so a second edit costs almost nothing.

The functions are pure: bytes in, bytes out. Must never: change a body that does not begin and end
like an object, or read a byte more than a few times, however the body is divided into pieces.
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = b" \t\r\n"
# A piece of up to this many bytes is joined with the added members, so that one write sends both.
_JOINED: Final = 64 * 1024


def append(body: list[bytes], members: bytes) -> list[bytes] | None:
    """Return the body with `members` (`"a":1` or `"a":1,"b":2`) at the end of its object.

    `body`: a JSON object in pieces, without content encoding. Returns `None` if the body is not an
    object; then it must be sent unchanged.
    """
    if not _is_opened(body):
        return None
    at = len(body) - 1  # Index of the piece with the closing brace.
    end = body[at].rstrip(_SPACE)
    while not end:
        at -= 1  # The loop ends, because `_is_opened` found a piece with more than whitespace.
        end = body[at].rstrip(_SPACE)
    if not end.endswith(b"}"):
        return None
    before = end[:-1].rstrip(_SPACE)
    while not before:
        at -= 1
        if at < 0:
            return None
        before = body[at].rstrip(_SPACE)
    comma = b"" if before.endswith(b"{") else b","
    added = b"%b%b%b" % (comma, members, body[at][len(before) :])
    if len(before) > _JOINED:
        return [*body[:at], before, added, *body[at + 1 :]]
    return [*body[:at], before + added, *body[at + 1 :]]


def _is_opened(body: list[bytes]) -> bool:
    """Whether the first byte that is not whitespace is an opening brace."""
    for piece in body:
        if piece.startswith(b"{"):
            return True
        begin = piece.lstrip(_SPACE)
        if begin:
            return begin.startswith(b"{")
    return False


def size_of(body: list[bytes]) -> int:
    return sum(map(len, body))


def with_length(lines: bytes, old: int, new: int) -> bytes | None:
    """Return header lines with a new Content-Length; `None` if the last line is not a
    Content-Length."""
    last = b"\r\ncontent-length: %d" % old
    if not lines.endswith(last):
        return None
    return b"%b\r\ncontent-length: %d" % (lines[: -len(last)], new)
