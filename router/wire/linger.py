"""How long a connection stays open after the refusal of its request.

A client whose request was refused may still be sending. Closing at once would reset the connection,
and the client would lose the error response. So the router first reads and discards the rest, for
at most `timeouts.refused_body` (nginx: lingering_time 30 s, lingering_timeout 5 s). Only
`LINGERING` connections do so at once, at most a quarter of all; others for `LINGER_S`.
"""

from __future__ import annotations

from typing import Final

LINGERING: Final = 256
LINGER_S: Final = 1.0


class Linger:
    """The times of one connection. `since`: the time of the refusal; 0: it was not refused."""

    __slots__ = ("_until", "since")

    def __init__(self) -> None:
        self.since = 0.0
        self._until = 0.0

    def begin(self, now: float, longest_s: float) -> None:
        self.since = now
        self._until = now + longest_s

    def deadline(self, now: float, refused_body_s: float) -> float:
        """Return the time at which a lingering connection that gets no more bytes is closed."""
        return min(self._until, now + refused_body_s / 6.0)

    def is_shut(self, now: float) -> bool:
        """Return whether a router that drains may close the connection."""
        return self.since > 0.0 and self.since + LINGER_S <= now
