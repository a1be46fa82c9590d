"""What became of one simulated (or logged) request. Times are seconds of the traffic's clock."""

from __future__ import annotations

from typing import Final

from router.admission.counts import EVICTED, REFUSALS
from router.core.errors import Reason
from router.simulator.traffic import Arrival

# Ends of requests that were never sent because of the queue: it was full, or their time was over.
REFUSED: Final = frozenset((*REFUSALS, EVICTED))
EXPIRED: Final = frozenset({Reason.QUEUE_TIMEOUT, Reason.DEADLINE_PASSED})


class Outcome:
    """The end of one request. `first` and `ended` are None-free: see `reason` first."""

    __slots__ = (
        "arrival",
        "attempts",
        "cached_tokens",
        "dispatched",
        "ended",
        "expected_tokens",
        "first",
        "hedge_won",
        "hedged",
        "queued_s",
        "reason",
        "replica",
        "router",
        "wasted_tokens",
    )

    def __init__(self, arrival: Arrival, replica: str, router: int, dispatched: float) -> None:
        self.arrival = arrival
        # The id of the replica that answered, or of the last one asked; "" if it got to none.
        self.replica = replica
        self.router = router  # the number of the router it came through
        self.dispatched = dispatched  # when that attempt left the router
        # Its first token, seen by the client (of an answer that is not streamed: all of it);
        # < 0: none came.
        self.first = -1.0
        self.ended = -1.0  # its last token, or when it failed
        self.cached_tokens = 0  # of the prompt, that the engine found in its cache
        self.expected_tokens = 0  # ... that the router took it to hold there
        # Seconds it waited in the router's queue, all together, before it was sent; < 0: there is
        # none, or it was never sent.
        self.queued_s = -1.0
        self.attempts = 1  # copies included
        self.hedged = False  # a second copy was sent ...
        self.hedge_won = False  # ... and answered first
        self.wasted_tokens = 0  # uncached prompt tokens of copies that were outrun
        self.reason = Reason.OK

    @property
    def ttft_s(self) -> float | None:
        """From its arrival to its first token; None: it showed none."""
        return None if self.first < 0.0 else self.first - self.arrival.at

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first; None: there were not two, or not seen one by
        one."""
        arrival = self.arrival
        more = arrival.output_tokens - 1
        if self.first < 0.0 or more < 1 or not arrival.stream or self.reason is not Reason.OK:
            return None
        return (self.ended - self.first) / more
