"""What engines have done for one request: who answers it, since when, and how many tokens it took.

Must never: decide about an attempt, or write to the client.
"""

from __future__ import annotations

from router.dispatch.usage import UNKNOWN
from router.fleet.cadence import Cadence
from router.fleet.replica import Replica


class Work:
    """Of one request. Times are monotonic seconds."""

    __slots__ = ("_cadence", "broke_at", "first_at", "replica", "usage")

    def __init__(self) -> None:
        self.replica: Replica | None = None  # whose content went to the client
        self.first_at = 0.0  # when the first content came; 0: none has come
        self.broke_at = 0.0  # its last content, while another replica is asked for the rest
        # How many tokens it took, known when it is over. Before that: an estimate, if its client
        # left before any content.
        self.usage = UNKNOWN
        self._cadence: Cadence | None = None  # of the replica whose stream is relayed now

    def shown(self, replica: Replica, now: float) -> Replica | None:
        """A replica shows its first content. Returns who answered before it."""
        before, self.replica = self.replica, replica
        if before is None:
            self.first_at = now
        self.broke_at = 0.0
        return before

    # -- the pace of a stream -----------------------------------------------------------------

    def flows(self, cadence: Cadence, now: float, events: int = 0) -> None:
        """The stream is relayed from now on; `events` of it without a token are not counted."""
        self._cadence = cadence
        cadence.begins(now, events)

    @property
    def is_flowing(self) -> bool:
        return self._cadence is not None

    def stops(self, now: float) -> None:
        """The stream ends, or its client no longer lets it go on."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)
