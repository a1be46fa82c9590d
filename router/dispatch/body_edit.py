"""Members for the JSON object that a client sent, without encoding it anew.

They become the object's last ones: of several members with one name the last counts (msgspec,
orjson, Python's json and with it pydantic, serde for maps), so a member can be replaced by adding
it once more. Every other byte stays the client's. Bodies are lists of pieces; only one piece at the
end is cut, so a second edit costs next to nothing.

Pure: bytes in, bytes out. Must never touch what does not look like an object from both ends, or
read a byte more than a few times, however the body is cut.
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = b" \t\r\n"
_JOINED: Final = 64 * 1024  # a piece that is not longer stays one: it is sent in one write


def append(body: list[bytes], members: bytes) -> list[bytes] | None:
    """The body with `members` (`"a":1` or `"a":1,"b":2`) as the last of its object.

    `body` is a JSON object in pieces, as it was decoded. None: it is none, so it stays as it is.
    """
    if not _is_opened(body):
        return None
    at = len(body) - 1  # the piece with the last brace
    end = body[at].rstrip(_SPACE)
    while not end:
        at -= 1  # `_is_opened`: some piece is more than space
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
    """Whether the first byte that is no space is an opening brace."""
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
    """The lines of a head, the last of which says Content-Length; None if it does not."""
    last = b"\r\ncontent-length: %d" % old
    if not lines.endswith(last):
        return None
    return b"%b\r\ncontent-length: %d" % (lines[: -len(last)], new)
