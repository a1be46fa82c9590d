"""Finds the members of a JSON object that is too large to decode at once, while its bytes arrive.

A decoder would block the event loop while it decodes the whole body. This scan examines each piece
of the body when it arrives. It keeps the raw value of a wanted member if the value is short, and
skips all other values. If several members have the same name, the last one counts, as in the
engines' decoders.

Must never: keep a long value, or validate more than where the object's own members begin and end.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

import msgspec

from router.core.unreadable import NOT_JSON

KEPT: Final = 4096  # maximum bytes of a value, or of a name, that is kept
# A body of unknown size is not scanned before more than this many bytes have arrived.
SMALL: Final = 256 * 1024

MEMBERS: Final = 10_000  # maximum number of members of one object; each costs about 2 µs
_NEAR: Final = 64  # number of bytes of a string that are compared one by one before a search
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C

# The states of a scan: what comes next in the JSON text.
_OBJECT: Final = 0  # the object's opening brace
_NAME: Final = 1  # a member's name, or the closing brace
_IN_NAME: Final = 2
_COLON: Final = 3
_VALUE: Final = 4  # inside a member's value
_OVER: Final = 5  # after the object's closing brace
_WRONG: Final = 6  # the text is not a JSON object


class Place(NamedTuple):
    """The position of a wanted member, in bytes from the start of the body."""

    name: str
    start: int  # position of the opening quote of the member's name
    value: int  # position after the colon
    end: int  # position of the comma or brace after the value


class MemberScan:
    """Finds the members of a JSON object whose bytes are fed in order, in pieces of any size.

    Each byte costs a few comparisons; a byte of a long string costs less. Each member costs some
    calls of functions, so an object with more than `MEMBERS` members is refused.
    """

    __slots__ = (
        "_before",
        "_depth",
        "_in_string",
        "_is_escaped",
        "_is_long",
        "_left",
        "_name",
        "_name_at",
        "_state",
        "_taken",
        "_value_at",
        "_wanted",
        "long",
        "members",
        "places",
    )

    def __init__(self, wanted: Container[str]) -> None:
        self.members: dict[str, bytes] = {}  # the raw values of wanted members, by name
        self.long: dict[str, None] = {}  # names whose value is too long to be kept
        self.places: list[Place] = []  # positions of all wanted members, in the order of the body
        self._wanted = wanted
        self._state = _OBJECT
        self._left = MEMBERS  # the number of members that the object may still have
        self._before = 0  # total bytes of the pieces before the current piece
        self._depth = 0  # number of open brackets and braces in the current value
        self._in_string = False
        self._is_escaped = False  # a backslash before the next byte of the string escapes it
        self._taken = bytearray()  # bytes of the current name or value
        self._is_long = False  # the current name or value is too long to be kept
        self._name = ""  # the name of the current member; "" if the member is not wanted
        self._name_at = 0
        self._value_at = 0

    @property
    def is_whole(self) -> bool:
        """Whether exactly one complete object has arrived. The scan does not validate values."""
        return self._state == _OVER

    @property
    def problem(self) -> str:
        """The reason, for an error message, why `is_whole` is false."""
        if self._left < 0:
            return f"it has more than {MEMBERS} members"
        return "it is not one JSON object"

    def feed(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size:
            state = self._state
            if state == _VALUE:
                at = self._value(data, at)
            elif state == _IN_NAME:
                at = self._in_a_name(data, at)
            elif state == _WRONG:
                return
            else:
                at = self._between(data, at)
        self._before += size

    def _between(self, data: bytes, at: int) -> int:
        """Scans white space between names and values, and one byte after the white space.

        Returns the index at which to continue.
        """
        size = len(data)
        byte = data[at]
        while byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09:
            at += 1
            if at == size:
                return at
            byte = data[at]
        state = self._state
        if state == _NAME and byte == _QUOTE:
            self._left -= 1
            self._state = _IN_NAME if self._left >= 0 else _WRONG
            self._in_string = True
            self._name_at = self._before + at
            self._begin()
            self._taken.append(byte)
        elif state == _COLON and byte == 0x3A:  # :
            self._state = _VALUE
            self._value_at = self._before + at + 1
            self._begin()
            self._is_long = not self._name
        elif state == _OBJECT and byte == 0x7B:  # {
            self._state = _NAME
        elif state == _NAME and byte == 0x7D:  # }
            self._state = _OVER
        else:
            self._state = _WRONG
        return at + 1

    def _begin(self) -> None:
        self._taken.clear()
        self._is_long = False

    def _take(self, data: bytes, start: int, end: int) -> None:
        """Keeps a part of the current name or value, if it is not too long."""
        if self._is_long:
            return
        if len(self._taken) + end - start > KEPT:
            self._is_long = True
            self._taken.clear()
        else:
            self._taken += data[start:end]

    def _string(self, data: bytes, at: int) -> int:
        """Scans a string. Returns the index at which to continue.

        Afterwards `_in_string` is true if the string continues in the next piece. A search for the
        next quote costs as much as comparing fifty bytes one by one. So the first `_NEAR` bytes of
        a string, and the first after an escaped quote, are compared before a search.
        """
        size = len(data)
        is_escaped = self._is_escaped
        while at < size:
            stop = at + _NEAR
            if stop > size:
                stop = size
            while at < stop:
                byte = data[at]
                at += 1
                if is_escaped:
                    is_escaped = False
                elif byte == _BACKSLASH:
                    is_escaped = True
                elif byte == _QUOTE:
                    self._is_escaped = False
                    self._in_string = False
                    return at
            if is_escaped or at == size:
                continue
            # The bytes up to the next quote are skipped without comparing them.
            end = data.find(b'"', at)
            if end < 0:
                end = size
            # Counts the backslashes directly before the quote. Backslashes escape in pairs, so an
            # odd number means that the quote is escaped.
            run = end
            while run > at and data[run - 1] == _BACKSLASH:
                run -= 1
            is_escaped = (end - run) % 2 == 1
            at = end
        self._is_escaped = is_escaped
        return size

    def _in_a_name(self, data: bytes, start: int) -> int:
        at = self._string(data, start)
        self._take(data, start, at)
        if not self._in_string:
            self._state = _COLON
            self._name = self._wanted_name()
        return at

    def _wanted_name(self) -> str:
        if self._is_long:
            return ""
        try:
            name = msgspec.json.decode(bytes(self._taken), type=str)
        except NOT_JSON:
            return ""
        return name if name in self._wanted else ""

    def _value(self, data: bytes, start: int) -> int:
        """Scans a value and the comma or brace after it. Returns the index at which to continue."""
        at, size = start, len(data)
        if self._in_string:
            at = self._string(data, at)
        depth = self._depth
        while at < size:
            byte = data[at]
            if byte == _QUOTE:
                self._in_string = True
                at = self._string(data, at + 1)
                continue
            if byte == 0x7B or byte == 0x5B:  # { [
                depth += 1
            elif byte == 0x7D or byte == 0x5D:  # } ]
                if depth == 0:
                    self._take(data, start, at)
                    self._ends(at)
                    self._state = _OVER if byte == 0x7D else _WRONG
                    return at + 1
                depth -= 1
            elif byte == 0x2C and depth == 0:  # ,
                self._take(data, start, at)
                self._ends(at)
                return at + 1
            at += 1
        self._depth = depth
        self._take(data, start, size)
        return size

    def _ends(self, at: int) -> None:
        """Records a member whose value has ended."""
        self._state = _NAME
        self._depth = 0
        name = self._name
        if not name:
            return
        self.places.append(Place(name, self._name_at, self._value_at, self._before + at))
        # Of two members with the same name, the last one counts.
        if self._is_long:
            self.members.pop(name, None)
            self.long[name] = None
        else:
            self.long.pop(name, None)
            self.members[name] = bytes(self._taken).strip(b" \t\r\n")


class LargeBody:
    """Scans a body of large or unknown size while it arrives. `feed` gets the body's pieces."""

    __slots__ = ("_held", "scan")

    def __init__(self, wanted: Container[str], *, is_large: bool) -> None:
        self.scan = MemberScan(wanted)
        # The bytes that have arrived of a body that may still be small; None: the body is large.
        self._held: bytearray | None = None if is_large else bytearray()

    def feed(self, data: bytes) -> None:
        held = self._held
        if held is None:
            self.scan.feed(data)
            return
        held += data
        if len(held) > SMALL:
            self._held = None
            self.scan.feed(bytes(held))


def without_members(body: bytes, places: list[Place]) -> list[bytes]:
    """Return the pieces of a JSON object without the members at these places.

    All other bytes are unchanged.
    """
    kept: list[bytes] = []
    at = 0
    for place in places:
        kept.append(body[at : place.start])
        at = place.end
        if body[at : at + 1] == b",":
            at += 1
        else:  # For the last member, the comma before the member is removed, too.
            before = b"".join(kept).rstrip(b" \t\r\n")
            kept = [before.removesuffix(b",")]
    kept.append(body[at:])
    return kept
