"""Keeps an engine's fingerprint when the event that contains it is removed from a stream.

vLLM sends `system_fingerprint` in the last event of a stream. If token counts (`usage`) were
requested, the last event contains the `usage`; the router removes this event if the client did not
ask for it. Otherwise the last event is the one with the `finish_reason`. So the latest event with a
`finish_reason` is held until the next event, which follows at once. Then the fingerprint is added
to the held event.

Must never: hold more than one event, or change an event in any other way.
"""

from __future__ import annotations

from typing import Final

FINISH: Final = b'"finish_reason":"'
_NAME: Final = b'"system_fingerprint"'


class Closing:
    """Handles the end of one stream whose usage event is removed.

    All relayed bytes of the stream pass through this object.
    """

    __slots__ = ("fingerprint", "held")

    def __init__(self) -> None:
        self.held = b""  # The latest event with a `finish_reason`, not relayed yet.
        self.fingerprint = b""  # The fingerprint of the removed usage event, as JSON.

    def pass_on(self, data: bytes) -> bytes:
        """Return the bytes that are relayed to the client now."""
        if self.fingerprint:
            return self.release(data)
        whole = self.held + data
        self.held = b""
        if not whole.endswith(b"\n\n"):
            return whole
        start = _start_of_event(whole, len(whole) - 2)
        if whole.find(FINISH, start) < 0:
            return whole
        self.held = whole[start:]
        return whole[:start]

    def release(self, data: bytes) -> bytes:
        """Return the held event and the bytes after it. Nothing is held afterwards."""
        whole = self.held + data
        self.held = b""
        if self.fingerprint:
            whole = _stamped(whole, self.fingerprint)
            self.fingerprint = b""
        return whole


def _start_of_event(data: bytes, inside: int) -> int:
    blank = data.rfind(b"\n\n", 0, inside)
    return blank + 2 if blank >= 0 else 0


def _stamped(data: bytes, fingerprint: bytes) -> bytes:
    """Add the fingerprint to the last event with a finish reason, unless the event has one."""
    at = data.rfind(FINISH)
    if at < 0:
        return data
    end = data.find(b"}\n\n", at)
    if end < 0 or data.find(_NAME, _start_of_event(data, at), end) >= 0:
        return data
    return b"%b,%b:%b%b" % (data[:end], _NAME, fingerprint, data[end:])
