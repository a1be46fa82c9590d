"""The members of a JSON object too large to decode at once, found while its bytes come in.

A decoder would hold the event loop for as long as the whole body takes; this walk takes each piece
as it is read. Of the members that are asked for the raw value is kept if it is short; all else is
passed over. Of several members with one name the last counts, as for the decoders of the engines.

Must never: judge more than where the object's own members begin and end, or keep what is long.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON

KEPT: Final = 4096  # bytes of a value, or of a name
SMALL: Final = 256 * 1024  # a body up to here costs no walk, until it is larger

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_SPACE: Final = frozenset(b" \t\r\n")

# What comes next.
_OBJECT: Final = 0  # its opening brace
_NAME: Final = 1  # a member's name, or the closing brace
_IN_NAME: Final = 2
_COLON: Final = 3
_VALUE: Final = 4  # inside a member's value
_OVER: Final = 5  # behind the closing brace
_WRONG: Final = 6  # it is no JSON object


class MemberScan:
    """Feed the pieces of a body in order; `members` holds what was found of `wanted`."""

    __slots__ = (
        "_depth",
        "_in_string",
        "_is_escaped",
        "_is_long",
        "_name",
        "_state",
        "_taken",
        "_wanted",
        "long",
        "members",
    )

    def __init__(self, wanted: Container[str]) -> None:
        self.members: dict[str, bytes] = {}  # raw values, by name
        self.long: dict[str, None] = {}  # names whose value is too long to be kept
        self._wanted = wanted
        self._state = _OBJECT
        self._depth = 0  # brackets and braces that are open in the present value
        self._in_string = False
        self._is_escaped = False  # the next byte of the string belongs to a backslash
        self._taken = bytearray()  # of the present name or value
        self._is_long = False  # it is not kept
        self._name = ""  # of the member whose value comes; "": nobody asked for it

    @property
    def is_whole(self) -> bool:
        """Whether exactly one object has come, as far as this walk can tell."""
        return self._state == _OVER

    def feed(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size:
            state = self._state
            if self._in_string:
                at = self._string(data, at)
            elif state == _VALUE:
                at = self._value(data, at)
            elif state == _WRONG:
                return
            else:
                self._between(data[at])
                at += 1

    def _between(self, byte: int) -> None:
        """One byte outside of names and values."""
        state = self._state
        if byte in _SPACE:
            return
        if state == _OBJECT and byte == 0x7B:  # {
            self._state = _NAME
        elif state == _NAME and byte == _QUOTE:
            self._state = _IN_NAME
            self._in_string = True
            self._begin()
            self._taken.append(byte)
        elif state == _NAME and byte == 0x2C:  # ,
            pass
        elif state == _NAME and byte == 0x7D:  # }
            self._state = _OVER
        elif state == _COLON and byte == 0x3A:  # :
            self._state = _VALUE
            self._begin()
            self._is_long = not self._name
        else:
            self._state = _WRONG

    def _begin(self) -> None:
        self._taken.clear()
        self._is_long = False

    def _take(self, data: bytes, start: int, end: int) -> None:
        """Keep a part of the present name or value."""
        if self._is_long:
            return
        if len(self._taken) + end - start > KEPT:
            self._is_long = True
            self._taken.clear()
        else:
            self._taken += data[start:end]

    def _string(self, data: bytes, start: int) -> int:
        """On through a string. Returns where to go on."""
        at = start
        if self._is_escaped:
            self._is_escaped = False
            at += 1  # the byte behind the backslash, whatever it is
        while True:
            end = data.find(b'"', at)
            # Quotes and their backslashes: a run of them before a quote, or at the end.
            stop = end if end >= 0 else len(data)
            run = stop
            while run > at and data[run - 1] == _BACKSLASH:
                run -= 1
            odd = (stop - run) % 2 == 1
            if end < 0:
                self._is_escaped = odd
                self._take(data, start, len(data))
                return len(data)
            at = end + 1
            if not odd:
                break
        self._take(data, start, at)
        self._in_string = False
        if self._state == _IN_NAME:
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
        """On through what is no string of a value. Returns where to go on."""
        depth = self._depth
        at, size = start, len(data)
        while at < size:
            byte = data[at]
            if byte == _QUOTE:
                self._take(data, start, at + 1)
                self._depth = depth
                self._in_string = True
                return at + 1
            if byte == 0x7B or byte == 0x5B:  # { [
                depth += 1
            elif byte == 0x7D or byte == 0x5D:  # } ]
                if depth == 0:
                    self._take(data, start, at)
                    self._ends()
                    self._state = _OVER if byte == 0x7D else _WRONG
                    return at + 1
                depth -= 1
            elif byte == 0x2C and depth == 0:  # ,
                self._take(data, start, at)
                self._ends()
                return at + 1
            at += 1
        self._depth = depth
        self._take(data, start, size)
        return size

    def _ends(self) -> None:
        """A member's value is over."""
        self._state = _NAME
        self._depth = 0
        if not self._name:
            return
        # The last of two counts.
        if self._is_long:
            self.members.pop(self._name, None)
            self.long[self._name] = None
        else:
            self.long.pop(self._name, None)
            self.members[self._name] = bytes(self._taken).strip(b" \t\r\n")


class LargeBody:
    """A body whose size is known to be large, or is not known, as it comes in: feed its pieces."""

    __slots__ = ("_held", "scan")

    def __init__(self, wanted: Container[str], *, is_large: bool) -> None:
        self.scan = MemberScan(wanted)
        # What came while it may still stay small; None: it will not.
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
