"""What is counted of hedging: plain numbers, read when somebody asks for /metrics.

Tokens are uncached prompt tokens as estimated at the choice; times are seconds.

Must never: be reset, or hold anything per request, model or replica.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why no copy went although one was allowed. Closed: the metric's label."""

    __hash__ = str.__hash__  # see core.errors.Reason

    COLD = "cold"  # too few answers of the model so far, and they do not show that it is late
    LONG = "long"  # the prompt is longer than `hedging.prompt_tokens`
    ALONE = "alone"  # there is no other replica
    UTILISATION = "utilisation"  # the pool is too busy
    SAME_ENGINE = "same_engine"  # the others are other addresses of the same engine
    HEALTH = "health"  # the others are suspect, on trial, at their limit or want a pause
    WAITING = "waiting"  # somebody waits at each of the others
    KV = "kv"  # the others' KV caches are nearly full
    BUDGET = "budget"
    GAIN = "gain"  # a copy is not expected to be earlier


class HedgeCounts:
    """Every number of hedging of one router."""

    def __init__(self) -> None:
        # Copies that went. fired = won + lost + failed + those under way.
        self.fired = 0
        self.won = 0  # it showed content first
        self.lost = 0  # the other copy did
        self.failed = 0  # it ended in any other way: an error, or the client left
        self.suppressed = dict.fromkeys(Refusal, 0)
        self.fired_tokens = 0  # of copies that reached a replica: what the budget paid
        self.returned_tokens = 0  # of copies that reached none
        self.wasted_tokens = 0  # computed for copies, and beside copies, that nobody was shown
        # What the losers would still have needed, as estimated by others that were as late.
        self.saved_s = 0.0
        self.suspected = 0  # replicas outrun so often that everybody should know
        self.policy_errors = 0  # a policy raised, or answered nonsense

        # Gauges.
        self.budget_tokens = 0.0  # that copies may use now
        self.hedgeable_share = 0.0  # of all prompt tokens lately, 0 to 1
        self.quantile = 0.0  # of first contents, that the budget pays from; 0 to 1

        # With `dry_run`: copies that were not sent, and what they would have saved.
        self.would_fire = 0
        self.would_fire_tokens = 0
        self.would_win = 0
        self.would_save_s = 0.0
