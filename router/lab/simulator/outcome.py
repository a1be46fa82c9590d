"""The result of one simulated request. Times are seconds since the beginning of the traffic."""

from __future__ import annotations

from typing import Final

from router.admission.counts import EVICTED, REFUSALS
from router.core.errors import Reason
from router.lab.simulator.traffic import Arrival

# The reasons of requests that were never sent, because the queue refused or dropped them.
REFUSED: Final = frozenset((*REFUSALS, EVICTED))
EXPIRED: Final = frozenset({Reason.QUEUE_TIMEOUT, Reason.DEADLINE_PASSED})


class Outcome:
    """The result of one request. Read `reason` first: failed requests may have no first token."""

    __slots__ = (
        "arrival",
        "attempts",
        "cached_tokens",
        "dispatched",
        "ended",
        "estimate_high_s",
        "estimate_low_s",
        "estimate_s",
        "expected_tokens",
        "first",
        "gain_achieved",
        "gain_attainable",
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
        # The ID of the replica that answered, or else of the last attempt's replica; "": the
        # request was never sent.
        self.replica = replica
        self.router = router  # the number of the router that handled the request
        self.dispatched = dispatched  # when the attempt at `replica` was sent
        # When the first token (without streaming: the complete answer) reached the client; below
        # 0: never.
        self.first = -1.0
        self.ended = -1.0  # when the last token reached the client, or when the request failed
        self.cached_tokens = 0  # prompt tokens that the engine found in its prefix cache
        self.expected_tokens = 0  # prompt tokens that the router expected in that cache
        # Total seconds in the router's queue before the request was sent; below 0: the router has
        # no queue, or the request was never sent.
        self.queued_s = -1.0
        self.attempts = 1  # number of attempts, retries and hedges included
        self.hedged = False  # True: a second copy of the request was sent
        self.hedge_won = False  # True: the second copy answered first
        # Prompt tokens computed for copies of the request that did not answer it.
        self.wasted_tokens = 0
        # The number of tokens that arrived before their deadlines, and the number that could have,
        # each times the worth of a token (`core/token_gain.py`). 0: the request does not count.
        self.gain_achieved = 0.0
        self.gain_attainable = 0.0
        # The time to first token that the router estimated, and the 90 % interval of the estimate,
        # in seconds since the arrival; below 0: no estimate.
        self.estimate_s = -1.0
        self.estimate_low_s = -1.0
        self.estimate_high_s = -1.0
        self.reason = Reason.OK

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request's arrival to its first token; None: no token arrived."""
        return None if self.first < 0.0 else self.first - self.arrival.at

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first.

        None: the request failed, was not streamed, or had fewer than two output tokens.
        """
        arrival = self.arrival
        more = arrival.output_tokens - 1
        if self.first < 0.0 or more < 1 or not arrival.stream or self.reason is not Reason.OK:
            return None
        return (self.ended - self.first) / more
