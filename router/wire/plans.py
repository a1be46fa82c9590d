"""Heads that were judged before, so that the next one like it costs two searches and a look-up.

On a kept connection a peer sends the same head again and again; only the digits of Content-Length
change. So a head is remembered under its bytes *without those digits*, together with what the whole
slow way (llhttp, sorting, every rule) made of it. The digits count only where the field's name
stands at the beginning of a line, in one of the two spellings that software uses; any other head is
its own key. What depends on the digits, and nothing else, is then set anew. A head is compared with
the one before it on its connection first, because that costs less than a look-up.

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


class Known(Generic[T]):
    """A head that was judged, and its bytes before and behind the digits of its length."""

    __slots__ = ("after", "before", "has_length", "plan")

    def __init__(self, before: bytes, after: bytes, has_length: bool, plan: T) -> None:
        self.before = before
        self.after = after
        self.has_length = has_length
        self.plan = plan

    def length(self, raw: bytes) -> int:
        """The length that `raw` states if it is the same head otherwise; 0 for the same head
        without a length; -1: it is another head."""
        before = self.before
        if not self.has_length:
            return 0 if raw == before else -1
        if not raw.startswith(before):
            return -1
        length, end = number_at(raw, len(before), _DIGITS)
        after = self.after
        if end + len(after) != len(raw) or not raw.endswith(after):
            return -1
        return length


def parts_of(raw: bytes) -> tuple[bytes, bytes, int]:
    """A head's bytes before and behind the digits of its Content-Length, and the length.

    The length is -1 for a head that states none: all its bytes stand before. Both parts are empty
    for a head whose length is not plain digits: it has no plan, and gets none. (A missing number
    that took the place of a remembered one would be a smuggled request.)
    """
    at = raw.find(_NAMES[0])
    if at < 0:
        at = raw.find(_NAMES[1])
        if at < 0:
            return raw, b"", -1
    start = at + _SKIP
    length, end = number_at(raw, start, _DIGITS)
    if length < 0 or end == len(raw) or raw[end] != _CR:
        return b"", b"", -1
    return raw[:start], raw[end:], length


class Plans(Generic[T]):
    """What the slow way made of a head, by its key. `latest`: the one that was found last."""

    __slots__ = ("found", "latest")

    def __init__(self) -> None:
        self.found: dict[bytes, Known[T]] = {}
        self.latest: Known[T] | None = None

    def find(self, raw: bytes) -> Known[T] | None:
        """The same head with any length, if it is remembered; `Known.length` says which."""
        before, after, _ = parts_of(raw)
        return self.found.get(before + after)

    def keep(self, raw: bytes, plan: T) -> None:
        before, after, length = parts_of(raw)
        has_length = length >= 0
        key = before + after
        if 0 < len(key) <= LONGEST:
            if len(self.found) >= CAPACITY:
                self.found.clear()
            self.found[key] = Known(before, after, has_length, plan)

    def clear(self) -> None:
        self.found.clear()
        self.latest = None
