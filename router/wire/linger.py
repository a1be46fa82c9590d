"""How long a connection stays open after the refusal of its request.

A client whose request was refused may still be sending. Closing at once would reset the connection,
and the client would lose the error response. So the router first reads and discards the rest, for
at most `timeouts.refused_body` (nginx: lingering_time 30 s, lingering_timeout 5 s). Only
`LINGERING` connections do so at once, at most a quarter of all; others for `LINGER_S`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from router.wire.connections import Connections
from router.wire.origins import Counted

LINGER_S: Final = 1.0


class Linger:
    """The times of one connection. `since`: the time of the refusal; 0: it was not refused."""

    __slots__ = ("_front", "_until", "since")

    def __init__(self, front: Connections) -> None:
        self._front = front
        self.since = 0.0
        self._until = 0.0

    def begin(
        self, connection: Counted, transport: asyncio.Transport, now: float, may_send: bool
    ) -> float:
        """Let a connection read and discard what the client still sends.

        Returns its deadline; 0: it must be closed now. `may_send`: the request may be incomplete.
        Over TLS only the client can close then, because the connection cannot be closed in one
        direction.
        """
        front = self._front
        can_write_eof = transport.can_write_eof()
        if not can_write_eof and not may_send:
            return 0.0
        self.since = now
        self._until = now + LINGER_S
        if len(front.lingering) < front.most_lingering:
            front.lingering[connection] = None
            self._until = now + front.timeouts.refused_body_s
        if can_write_eof:
            transport.write_eof()
        return self.deadline(now)

    def deadline(self, now: float) -> float:
        """Return the time at which a lingering connection that gets no more bytes is closed."""
        return min(self._until, now + self._front.timeouts.refused_body_s / 6.0)

    def is_shut(self, now: float) -> bool:
        """Return whether a router that drains may close the connection."""
        return self.since > 0.0 and self.since + LINGER_S <= now
