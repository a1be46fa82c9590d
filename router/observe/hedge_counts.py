"""The counters of hedging, which /metrics reports.

Hedging sends a second copy of a late request to another replica. Tokens are uncached prompt tokens,
as estimated when the replica was chosen. Times are in seconds.

Must never: be reset, or store anything per request, model or replica.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """The reason why a second copy was sent. The values are label values of a metric."""

    __hash__ = str.__hash__

    LATE = "late"  # the delay of the policy has passed
    SILENT = "silent"  # the replica shows no work, and the copy's replica is idle
    CLASS = "class"  # the delay of the request's class has passed; see `hedging.delay`


class Refusal(StrEnum):
    """The reason why a second copy was not sent although hedging was allowed for the request.

    The values are label values of a metric.
    """

    __hash__ = str.__hash__  # faster than the hash of an enum; see `core.errors.Reason`

    # Too few responses of the model are known to decide that the request is late, while its replica
    # shows work, or no other replica is idle.
    COLD = "cold"
    LONG = "long"  # the prompt is longer than `hedging.prompt_tokens`
    ALONE = "alone"  # no other replica serves the model
    UTILISATION = "utilisation"  # the replicas' utilisation is above `hedging.utilisation`
    SAME_ENGINE = "same_engine"  # the other replicas are other addresses of the same engine
    # The other replicas are suspect, send no tokens, are on trial after an ejection, are at their
    # limit, or asked for a pause.
    HEALTH = "health"
    WAITING = "waiting"  # requests already wait at each of the other replicas
    KV = "kv"  # the KV caches of the other replicas are nearly full
    BUDGET = "budget"  # the budget cannot pay for a copy, and no other replica is idle
    GAIN = "gain"  # the copy's first token is not expected before the first attempt's


class HedgeCounts:
    """All hedging counters and gauges of one router."""

    def __init__(self) -> None:
        # Number of second copies that were sent: won + lost + failed + copies in progress.
        self.fired = 0
        self.won = 0  # copies that delivered content first
        self.lost = 0  # copies for which another attempt delivered content first
        self.failed = 0  # copies that ended in any other way: an error, or the client disconnected
        self.causes = dict.fromkeys(Cause, 0)  # the copies in `fired`, by cause
        self.suppressed = dict.fromkeys(Refusal, 0)
        # Copies at idle replicas, which cost no budget, and the tokens of copies that the budget
        # did not pay.
        self.idle = 0
        self.idle_tokens = 0.0
        # Tokens of copies that reached a replica.
        self.fired_tokens = 0
        # Tokens of copies that reached no replica. What they cost was given back to the budget.
        self.returned_tokens = 0
        self.wasted_tokens = 0  # tokens computed by attempts whose output no client received
        # The seconds by which first tokens came earlier because a copy was first. How long the
        # other attempt would still have taken is estimated from requests that were equally late.
        self.saved_s = 0.0
        # How often a replica became suspect because copies at other replicas delivered first.
        self.suspected = 0
        # How often a policy raised an exception or returned an invalid value.
        self.policy_errors = 0

        # The next three values are gauges: they can decrease.
        self.budget_tokens = 0.0  # number of tokens that copies may use now
        self.hedgeable_share = 0.0  # share of recent prompt tokens that may be hedged, 0 to 1
        # Only requests that are later than this quantile of the TTFT (0 to 1) can get a second copy
        # within the budget.
        self.quantile = 0.0

        # Counters for `dry_run`: copies that would have been sent, and the time they would save.
        self.would_fire = 0
        self.would_fire_tokens = 0
        self.would_win = 0
        self.would_save_s = 0.0
