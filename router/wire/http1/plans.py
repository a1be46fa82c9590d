"""Remembers heads that were parsed before, so that an equal head costs only two searches and one
dict lookup.

On a kept connection a peer sends the same head again and again; only the digits of Content-Length
change. So a head is stored under its bytes *without those digits*, together with the result of the
slow path (llhttp, sorting, every rule). The digits are left out only if the field's name stands at
the beginning of a line, in one of the two spellings that software uses. Any other head is stored
under all its bytes. When a remembered head is used, only the values that depend on the digits are
set again. A head is first compared with the previous head of its connection, because that costs
less than a lookup.

A `Plans` belongs to one set of rules (limits, the router's own name): code that changes the rules
must clear it. The number of remembered heads is bounded; when it is reached, all are dropped.

Must never: hold a head that the slow path refused.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from router.wire.http1.digits import number_at

T = TypeVar("T")

_NAMES: Final = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
_SKIP: Final = len(_NAMES[0])
_DIGITS: Final = 18  # maximum digits of a Content-Length; a longer number is not a valid length
_CR: Final = 13
CAPACITY: Final = 512  # maximum number of remembered heads
LONGEST: Final = 2048  # maximum bytes of a head that is remembered


class Known(Generic[T]):
    """A remembered head: its bytes before and after the digits of its length, and its plan."""

    __slots__ = ("after", "before", "has_length", "plan")

    def __init__(self, before: bytes, after: bytes, has_length: bool, plan: T) -> None:
        self.before = before
        self.after = after
        self.has_length = has_length
        self.plan = plan

    def length(self, raw: bytes) -> int:
        """Returns the length that `raw` states if `raw` is otherwise equal to this head.

        Returns 0 for the same head without a length, and -1 for another head.
        """
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
    """Returns a head's bytes before and after the digits of its Content-Length, and the length.

    If the head has no length, the length is -1 and all bytes are in the first part. If the length
    is not plain digits, both parts are empty: such a head has no plan and gets none. (If a missing
    number matched a remembered one, a request could be smuggled.)
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
    """The results of the slow path, by the key of their head. `latest` is the head that was found
    last.
    """

    __slots__ = ("found", "latest")

    def __init__(self) -> None:
        self.found: dict[bytes, Known[T]] = {}
        self.latest: Known[T] | None = None

    def find(self, raw: bytes) -> Known[T] | None:
        """Returns the remembered head that equals `raw` in all but the length. See
        `Known.length`.
        """
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
