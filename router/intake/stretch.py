"""A range of bytes of a large request body, such as a long prompt, without a copy of the bytes.

Copying some megabytes costs more CPU time than everything else that the router does with a body. So
a long prompt stays in the pieces in which its body arrived. Only the part that is hashed is copied.

Must never: be kept longer than the body, because it keeps the body's pieces in memory
(`Fields.drop`).
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = b" \t\r\n"
_STEP: Final = 64 * 1024  # number of bytes that are copied at once to search for white space


class Stretch:
    """The bytes of a body from `start` to `end`.

    The positions that its methods take count from the start of the stretch.
    """

    __slots__ = ("_pieces", "_start", "size")

    def __init__(self, pieces: list[bytes], start: int, end: int) -> None:
        self._pieces = pieces
        self._start = start
        self.size = end - start

    def cut(self, start: int, end: int) -> bytes:
        """Return a copy of the bytes from `start` to `end`, or to the end of the stretch."""
        left = self._start + max(start, 0)
        right = self._start + min(end, self.size)
        found: list[bytes] = []
        at = 0  # position of the piece in the body
        for piece in self._pieces:
            if at >= right:
                break
            size = len(piece)
            if at + size > left:
                whole = left <= at and at + size <= right
                found.append(piece if whole else piece[max(left - at, 0) : right - at])
            at += size
        return found[0] if len(found) == 1 else b"".join(found)

    def whole(self) -> bytes:
        """Return a copy of all bytes of the stretch."""
        return self.cut(0, self.size)

    def part(self, start: int, end: int) -> Stretch:
        """Return the part of this stretch from `start` to `end`."""
        return Stretch(self._pieces, self._start + start, self._start + end)

    def narrowed(self, start: int, end: int) -> Stretch:
        """Return the part from `start` to `end`, without white space at its beginning and end."""
        while start < end:
            step = self.cut(start, min(start + _STEP, end))
            kept = len(step.lstrip(_SPACE))
            start += len(step) - kept
            if kept:
                break
        while start < end:
            step = self.cut(max(end - _STEP, start), end)
            kept = len(step.rstrip(_SPACE))
            end -= len(step) - kept
            if kept:
                break
        return self.part(start, end)


# Number of occurrences of the rare byte after which the distance between occurrences is measured.
_HOPS: Final = 64
# If the rare byte occurs more often than once in this many bytes, the whole mark is searched.
_APART: Final = 512


def contains(text: bytes, mark: bytes, rare: int, start: int, end: int) -> bool:
    """Return whether `text` contains `mark` between `start` and `end`.

    For most texts this takes a twentieth of the time of `bytes.find`. `rare`: the index in `mark`
    of a byte that is rare in most texts. A search for one byte is ten to forty times as fast as a
    search for several bytes. If the byte is frequent, the rest of the text is searched for the
    whole mark, beginning at the end. In CPython this is twice as fast as from the start.
    """
    byte = mark[rare : rare + 1]
    first = at = start + rare
    hops = 0
    while hops < _HOPS or at - first >= hops * _APART:
        at = text.find(byte, at, end)
        if at < 0:
            return False
        if text.startswith(mark, at - rare, end):
            return True
        at += 1
        hops += 1
    return text.rfind(mark, at - rare, end) >= 0
