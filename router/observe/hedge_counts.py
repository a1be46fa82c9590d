"""Counters of hedging: plain numbers, read at a scrape of /metrics.

Tokens are uncached prompt tokens, as estimated when the replica was chosen. Times are seconds.

Must never: be reset, or store anything per request, model or replica.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """The reason why an allowed copy was not sent. A closed set: the values are label values of a
    metric.
    """

    __hash__ = str.__hash__  # see core.errors.Reason

    COLD = "cold"  # too few answers of the model so far to show that the request is late
    LONG = "long"  # the prompt is longer than `hedging.prompt_tokens`
    ALONE = "alone"  # there is no other replica
    UTILISATION = "utilisation"  # the pool is too busy
    SAME_ENGINE = "same_engine"  # the other replicas are other addresses of the same engine
    # The other replicas are suspect, silent, on trial, at their limit or asked for a pause.
    HEALTH = "health"
    WAITING = "waiting"  # requests wait at each of the other replicas
    KV = "kv"  # the KV caches of the other replicas are nearly full
    BUDGET = "budget"
    GAIN = "gain"  # the copy is not expected to answer earlier than the first attempt


class HedgeCounts:
    """All hedging counters and gauges of one router."""

    def __init__(self) -> None:
        # Copies that were sent. fired = won + lost + failed + copies under way.
        self.fired = 0
        self.won = 0  # the copy delivered content first
        self.lost = 0  # another attempt delivered content first
        self.failed = 0  # the copy ended in any other way: an error, or the client left
        self.suppressed = dict.fromkeys(Refusal, 0)
        self.fired_tokens = 0  # tokens of copies that reached a replica: charged to the budget
        self.returned_tokens = 0  # tokens of copies that reached no replica: returned to the budget
        self.wasted_tokens = 0  # tokens computed by attempts whose output no client received
        # Seconds that losing attempts would still have needed, estimated from equally late
        # requests.
        self.saved_s = 0.0
        self.suspected = 0  # replicas that became suspect because copies elsewhere answered first
        self.policy_errors = 0  # a policy raised or returned an invalid value

        # Gauges.
        self.budget_tokens = 0.0  # tokens that copies may use now
        self.hedgeable_share = 0.0  # share of recent prompt tokens that may be hedged, 0 to 1
        self.quantile = 0.0  # quantile of the TTFT from which the budget pays for copies, 0 to 1

        # With `dry_run`: copies that were not sent, and the time they would have saved.
        self.would_fire = 0
        self.would_fire_tokens = 0
        self.would_win = 0
        self.would_save_s = 0.0
