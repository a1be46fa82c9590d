"""Declares the hedging counters as Prometheus metrics.

The counters of a dry run have separate metrics, so that second copies that were not sent are never
added to copies that were sent.
"""

from __future__ import annotations

from typing import Final

from router.observe.families.family import Family, counter, gauge
from router.observe.hedge_counts import HedgeCounts

FAMILIES: Final[tuple[Family[HedgeCounts], ...]] = (
    counter(
        "hedges_ended",
        "Second copies ended: they won (showed content first), lost, or failed.",
        lambda c: {"won": c.won, "lost": c.lost, "failed": c.failed},
        "outcome",
    ),
    counter(
        "hedges_suppressed",
        "Second copies that were due but not sent, by reason.",
        lambda c: {reason.value: count for reason, count in c.suppressed.items()},
        "reason",
    ),
    counter("hedges_fired", "Second copies sent.", lambda c: c.fired),
    counter(
        "hedge_causes",
        "Second copies sent, by cause: the request was late, its replica showed no work (silent), "
        "or its class asked for a copy.",
        lambda c: {cause.value: count for cause, count in c.causes.items()},
        "cause",
    ),
    counter(
        "hedges_idle",
        "Second copies sent to idle replicas, which cost no budget.",
        lambda c: c.idle,
    ),
    counter(
        "hedge_idle_tokens",
        "Uncached prompt tokens of second copies that the budget did not pay.",
        lambda c: c.idle_tokens,
    ),
    counter(
        "hedge_tokens",
        "Uncached prompt tokens of second copies.",
        # If a copy never reached a replica, its tokens move from `fired_tokens` to
        # `returned_tokens`. A counter must not decrease, so the sum is reported.
        lambda c: c.fired_tokens + c.returned_tokens,
    ),
    counter(
        "hedge_returned_tokens",
        "Tokens returned to the budget, of second copies that never reached a replica.",
        lambda c: c.returned_tokens,
    ),
    counter(
        "hedge_wasted_tokens",
        "Uncached prompt tokens computed by the attempts of hedged requests that were not used.",
        lambda c: c.wasted_tokens,
    ),
    counter(
        "hedge_saved_seconds",
        "Estimated time that cancelled first attempts would still have needed to show content.",
        lambda c: c.saved_s,
    ),
    counter(
        "hedge_suspects",
        "Replicas that became suspect because they lost too many times in a row.",
        lambda c: c.suspected,
    ),
    counter("hedge_policy_errors", "Failures of the hedging policy.", lambda c: c.policy_errors),
    counter(
        "hedge_dry_run_fired",
        "Dry run: second copies that would have been sent.",
        lambda c: c.would_fire,
    ),
    counter(
        "hedge_dry_run_tokens",
        "Dry run: uncached prompt tokens of second copies.",
        lambda c: c.would_fire_tokens,
    ),
    counter(
        "hedge_dry_run_won",
        "Dry run: second copies that would have shown content first.",
        lambda c: c.would_win,
    ),
    counter(
        "hedge_dry_run_saved_seconds",
        "Dry run: total time that second copies would have saved.",
        lambda c: c.would_save_s,
    ),
    gauge(
        "hedge_budget_tokens",
        "Uncached prompt tokens that second copies may use now.",
        lambda c: c.budget_tokens,
    ),
    gauge(
        "hedgeable_ratio",
        "Share of recent prompt tokens whose requests may be hedged.",
        lambda c: c.hedgeable_share,
    ),
    gauge(
        "hedge_quantile",
        "Quantile of times to first content above which the budget pays for copies.",
        lambda c: c.quantile,
    ),
)
