"""The work of engines for one request: which replica answers, since when, and how many tokens.

Must never: decide about an attempt, or write to the client.
"""

from __future__ import annotations

from router.dispatch.usage.token_counts import UNKNOWN
from router.fleet.cadence import Cadence
from router.fleet.replica import Replica


class Work:
    """The work for one request. Times are monotonic seconds."""

    __slots__ = (
        "_cadence",
        "broke_at",
        "first_at",
        "replica",
        "timely",
        "tokens_due",
        "tokens_on_time",
        "usage",
    )

    def __init__(self) -> None:
        self.replica: Replica | None = None  # The replica whose content was sent to the client.
        self.first_at = 0.0  # Time of the first content; 0: no content has come.
        # Time of the last content of a broken stream, while another replica is asked for the rest
        # of the stream.
        self.broke_at = 0.0
        # The token counts, set when the request ends. If the client left before any content, the
        # counts are an estimate.
        self.usage = UNKNOWN
        # Share of the stream's content events that came before their deadlines; below 0: the events
        # were not read one by one.
        self.timely = -1.0
        # Number of output tokens that came before their deadlines, and number of those that could
        # have. Set when the request ends (`gain.py`). Below 0: the request does not count.
        self.tokens_on_time = -1.0
        self.tokens_due = -1.0
        # The speed measurement (`Cadence`) of the replica whose stream is relayed now.
        self._cadence: Cadence | None = None

    def shown(self, replica: Replica, now: float) -> Replica | None:
        """Note a replica's first content. Returns the replica that answered the request before."""
        before, self.replica = self.replica, replica
        if before is None:
            self.first_at = now
        self.broke_at = 0.0
        return before

    # -- the speed of a stream ----------------------------------------------------------------

    def flows(self, cadence: Cadence, now: float, events: int = 0) -> None:
        """Measure the stream's speed from now on.

        `events`: the number of later events of the stream that contain no token and so are not
        counted.
        """
        self._cadence = cadence
        cadence.begins(now, events)

    @property
    def is_flowing(self) -> bool:
        return self._cadence is not None

    def stops(self, now: float) -> None:
        """Stop measuring the stream's speed: the stream ends, or the client no longer reads."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)
