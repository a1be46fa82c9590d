"""An engine's fingerprint, when the event that tells it is taken out of a stream.

vLLM tells `system_fingerprint` in the last event of a stream. Asked for usage, that is the usage
event, which a client that did not ask for it never gets; unasked, it is the event with the
`finish_reason`. So the latest event with a reason waits for the one behind it, which follows at
once, and takes over the fingerprint.

Must never: hold more than one event, or alter one in any other way.
"""

from __future__ import annotations

from typing import Final

FINISH: Final = b'"finish_reason":"'
_NAME: Final = b'"system_fingerprint"'


class Closing:
    """The end of one stream whose usage event is taken out. Give it all that is relayed."""

    __slots__ = ("fingerprint", "held")

    def __init__(self) -> None:
        self.held = b""  # the latest event with a reason; not relayed yet
        self.fingerprint = b""  # as JSON, of the usage event that was taken out

    def pass_on(self, data: bytes) -> bytes:
        """What of it goes to the client now."""
        if self.fingerprint:
            return self.let_go(data)
        whole = self.held + data
        self.held = b""
        if not whole.endswith(b"\n\n"):
            return whole
        start = _start_of_event(whole, len(whole) - 2)
        if whole.find(FINISH, start) < 0:
            return whole
        self.held = whole[start:]
        return whole[:start]

    def let_go(self, data: bytes) -> bytes:
        """What is held, and what comes behind it; nothing more is held."""
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
    """The last event with a reason ends with the fingerprint, unless the engine has told it."""
    at = data.rfind(FINISH)
    if at < 0:
        return data
    end = data.find(b"}\n\n", at)
    if end < 0 or data.find(_NAME, _start_of_event(data, at), end) >= 0:
        return data
    return b"%b,%b:%b%b" % (data[:end], _NAME, fingerprint, data[end:])
