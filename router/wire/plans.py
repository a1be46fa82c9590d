"""Heads that were judged before, so that the next one like it costs two searches and a look-up.

On a kept connection a peer sends the same head again and again; only the digits of Content-Length
change. So a head is remembered under its bytes *without those digits*, together with what the whole
slow way (llhttp, sorting, every rule) made of it. The digits count only where the field's name
stands at the beginning of a line, in one of the two spellings that software uses; any other head is
its own key. What depends on the digits, and nothing else, is then set anew.

A `Plans` belongs to one set of rules (limits, our own name): whoever changes the rules clears it.
Bounded, and emptied when full. Must never hold a head that the slow way refused.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from router.wire.digits import number_at

T = TypeVar("T")

_NAMES: Final = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
_SKIP: Final = len(_NAMES[0])
_DIGITS: Final = 18  # a longer number is no length
_CR: Final = 13
CAPACITY: Final = 512  # heads
LONGEST: Final = 2048  # bytes of a head that is remembered


def key_of(raw: bytes) -> tuple[bytes, int | None]:
    """A head without the digits of its Content-Length, and the length (None if it has none).

    The key is b"" for a head whose length is not plain digits: it has no plan, and gets none. (A
    missing number that took the place of a remembered one would be a smuggled request.)
    """
    at = raw.find(_NAMES[0])
    if at < 0:
        at = raw.find(_NAMES[1])
        if at < 0:
            return raw, None
    start = at + _SKIP
    length, end = number_at(raw, start, _DIGITS)
    if length < 0 or end == len(raw) or raw[end] != _CR:
        return b"", None
    return raw[:start] + raw[end:], length


class Plans(Generic[T]):
    """What the slow way made of a head, by its key."""

    __slots__ = ("find", "found")

    def __init__(self) -> None:
        self.found: dict[bytes, T] = {}
        self.find = self.found.get

    def keep(self, key: bytes, plan: T) -> None:
        if 0 < len(key) <= LONGEST:
            if len(self.found) >= CAPACITY:
                self.found.clear()
            self.found[key] = plan

    def clear(self) -> None:
        self.found.clear()
