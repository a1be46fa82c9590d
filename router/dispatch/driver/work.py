"""The work of engines for one request: which replica answers, since when, and the token counts.

Must never: decide about an attempt, or write to the client.
"""

from __future__ import annotations

from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.cadence import Cadence
from router.fleet.replica import Replica


class Work:
    """The work for one request. Times are monotonic seconds."""

    __slots__ = ("_cadence", "broke_at", "first_at", "replica", "usage")

    def __init__(self) -> None:
        self.replica: Replica | None = None  # The replica whose content was sent to the client.
        self.first_at = 0.0  # When the first content came; 0: none has come.
        # When the last content of a broken stream came, while another replica is asked for the
        # rest.
        self.broke_at = 0.0
        # The token counts, known when the request is over. Before that it is an estimate, if the
        # client left before any content.
        self.usage = UNKNOWN
        # The cadence of the replica whose stream is relayed now.
        self._cadence: Cadence | None = None

    def shown(self, replica: Replica, now: float) -> Replica | None:
        """Note a replica's first content. Returns the replica that answered before it."""
        before, self.replica = self.replica, replica
        if before is None:
            self.first_at = now
        self.broke_at = 0.0
        return before

    # -- the pace of a stream -----------------------------------------------------------------

    def flows(self, cadence: Cadence, now: float, events: int = 0) -> None:
        """Count the stream as relayed from now on.

        `events`: events without a token, which are not counted.
        """
        self._cadence = cadence
        cadence.begins(now, events)

    @property
    def is_flowing(self) -> bool:
        return self._cadence is not None

    def stops(self, now: float) -> None:
        """Stop counting: the stream ends, or the client no longer reads."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)
