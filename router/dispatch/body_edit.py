"""Members for the JSON object that a client sent, without encoding it anew.

They become the object's last ones: of several members with one name the last counts (msgspec,
orjson, Python's json and with it pydantic, serde for maps), so a member can be replaced by adding
it once more. Every other byte stays the client's. Bodies are lists of pieces; only the piece at the
end is cut, so a second edit costs next to nothing.

Pure: bytes in, bytes out. Must never touch what does not look like an object from both ends.
"""

from __future__ import annotations

import re
from typing import Final

_OPENING: Final = re.compile(rb"[ \t\r\n]*\{")
_SPACE: Final = b" \t\r\n"
_JOINED: Final = 64 * 1024  # a piece that is not longer stays one: it is sent in one write


def append(body: list[bytes], members: bytes) -> list[bytes] | None:
    """The body with `members` (`"a":1` or `"a":1,"b":2`) as the last of its object.

    `body` is a JSON object in pieces, as it was decoded. None: it is none, so it stays as it is.
    """
    if not body:
        return None
    if not body[0].startswith(b"{") and _OPENING.match(body[0]) is None:
        # The brace may stand behind pieces of nothing but space.
        return append([b"".join(body)], members) if len(body) > 1 else None
    piece = body[-1]
    end = piece.rfind(b"}")
    last = end - 1  # what stands before the brace
    while last >= 0 and piece[last] in _SPACE:
        last -= 1
    if last < 0:
        # One of the two is in another piece.
        return append([*body[:-2], body[-2] + piece], members) if len(body) > 1 else None
    if piece[end + 1 :].strip(_SPACE):
        return None
    added = b"%b%b%b" % (b"" if piece[last] == 0x7B else b",", members, piece[end:])
    if end > _JOINED:
        return [*body[:-1], piece[:end], added]
    return [*body[:-1], piece[:end] + added]


def size_of(body: list[bytes]) -> int:
    return sum(map(len, body))


def with_length(lines: bytes, old: int, new: int) -> bytes | None:
    """The lines of a head, the last of which says Content-Length; None if it does not."""
    last = b"\r\ncontent-length: %d" % old
    if not lines.endswith(last):
        return None
    return b"%b\r\ncontent-length: %d" % (lines[: -len(last)], new)
