"""Remembers parsed heads, so that an equal head costs only a comparison, or one dict lookup.

On a connection that stays open, a peer sends the same head again and again; only the digits of
Content-Length change. So the result of parsing and checking a head is stored. Its key is the bytes
of the head *without those digits*. The digits are left out only if the field name stands at the
beginning of a line, in one of the two spellings that software uses. For any other head, the key is
all its bytes. When a remembered head is used, only its Content-Length is set again. A head is first
compared with the previous head, because a comparison costs less than a lookup.

The stored results depend on the limits and on the router's own name: code that changes them must
clear the `Plans`. When the maximum number of remembered heads is reached, all are dropped.

Must never: hold a head that the checks refused.
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
    """A remembered head. `plan` is the result of parsing and checking it.

    `before` and `after` are the bytes before and after the digits of its Content-Length.
    """

    __slots__ = ("after", "before", "has_length", "plan")

    def __init__(self, before: bytes, after: bytes, has_length: bool, plan: T) -> None:
        self.before = before
        self.after = after
        self.has_length = has_length
        self.plan = plan

    def match(self, data: bytes) -> tuple[int, int]:
        """Return the number of bytes of the head with which `data` begins, and its Content-Length,
        if it is equal to this head except for the digits.

        The Content-Length is 0 if the head has none. If `data` begins with another head or with
        none, both are -1. No search for the end of the head is needed: a remembered head has only
        one CRLF CRLF, which is its end.
        """
        before = self.before
        if not data.startswith(before):
            return -1, -1
        if not self.has_length:
            return len(before), 0
        length, at = number_at(data, len(before), _DIGITS)
        after = self.after
        end = at + len(after)
        if length < 0 or data[at:end] != after:
            return -1, -1
        return end, length


def parts_of(raw: bytes) -> tuple[bytes, bytes, int]:
    """Return a head's bytes before and after the digits of its Content-Length, and the length.

    If the head has no Content-Length, the length is -1 and all bytes are in the first part. If the
    Content-Length is not only digits, both parts are empty, so the head is never remembered and
    never found. Otherwise a head with an empty Content-Length could equal a remembered head, and a
    request could be smuggled.
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
    """The remembered heads by their keys. `latest` is the head of the latest successful lookup."""

    __slots__ = ("found", "latest")

    def __init__(self) -> None:
        self.found: dict[bytes, Known[T]] = {}
        self.latest: Known[T] | None = None

    def find(self, raw: bytes) -> Known[T] | None:
        """Return the remembered head that is equal to `raw` except for the Content-Length digits.

        A match does not prove that `raw` has the same length field: call `Known.match` next.
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
