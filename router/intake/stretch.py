"""A value of a large body as its client wrote it: its position in the body, without a copy.

Copying some megabytes costs more CPU than everything else that the router does with them. So a long
prompt stays in the pieces in which its body arrived. Only the hashed part is copied.

Must never: outlive the body, because it keeps the body's pieces alive (`Fields.drop`).
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = b" \t\r\n"
_STEP: Final = 64 * 1024  # bytes that are copied at once to search for space


class Stretch:
    """The bytes of a body from `start` to `end`. Positions in the calls count from the start of the
    stretch.
    """

    __slots__ = ("_pieces", "_start", "size")

    def __init__(self, pieces: list[bytes], start: int, end: int) -> None:
        self._pieces = pieces
        self._start = start
        self.size = end - start

    def cut(self, start: int, end: int) -> bytes:
        """A copy of the bytes from `start` to `end`, or to the end of the stretch."""
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
        """A copy of all bytes of the stretch."""
        return self.cut(0, self.size)

    def part(self, start: int, end: int) -> Stretch:
        """A part of this stretch of a body: its bytes from `start` to `end`."""
        return Stretch(self._pieces, self._start + start, self._start + end)

    def narrowed(self, start: int, end: int) -> Stretch:
        """The part of this stretch from `start` to `end`, without the space around it."""
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

    def contains(self, mark: bytes, rare: int) -> bool:
        """Whether the stretch contains `mark`. `rare`: see the function `contains`."""
        left, right = self._start, self._start + self.size
        most = len(mark) - 1
        at = 0  # position of the piece in the body
        tail = b""  # the end of the earlier pieces, in which the mark may begin
        for piece in self._pieces:
            if at >= right:
                break
            size = len(piece)
            if at + size > left:
                start, end = max(left - at, 0), min(right - at, size)
                if tail and mark in tail + piece[start : min(start + most, end)]:
                    return True
                if contains(piece, mark, rare, start, end):
                    return True
                tail = (tail + piece[max(start, end - most) : end])[-most:]
            at += size
        return False


_HOPS: Final = 64  # number of hops to single bytes before the distance of the hits is measured
# Bytes between hits; if hits are closer, all bytes of the mark are searched at once.
_APART: Final = 512


def contains(text: bytes, mark: bytes, rare: int, start: int, end: int) -> bool:
    """Whether `text` contains `mark` between `start` and `end`.

    For most texts this takes a twentieth of the time of `bytes.find`. `rare`: the index in `mark`
    of a byte that is rare in most texts. A search for one byte is ten to forty times as fast as one
    for several. If the byte is frequent, the rest is searched from the end, which is twice as fast
    in CPython as from the start.
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
