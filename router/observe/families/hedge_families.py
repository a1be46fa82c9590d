"""Declares the hedging counters as Prometheus metrics.

The counters of a dry run have separate metrics, so that second copies that were not sent are never
added to copies that were sent.
"""

from __future__ import annotations

from typing import Final

from router.observe.families.family import COUNTER, GAUGE, Family
from router.observe.hedge_counts import HedgeCounts

FAMILIES: Final[tuple[Family[HedgeCounts], ...]] = (
    Family(
        "hedges_ended",
        COUNTER,
        "Second copies ended: they won (showed content first), lost, or failed.",
        lambda c: {"won": c.won, "lost": c.lost, "failed": c.failed},
        ("outcome",),
    ),
    Family(
        "hedges_suppressed",
        COUNTER,
        "Second copies that were due but not sent, by reason.",
        lambda c: {reason.value: count for reason, count in c.suppressed.items()},
        ("reason",),
    ),
    Family(
        "hedges_fired",
        COUNTER,
        "Second copies sent.",
        lambda c: c.fired,
    ),
    Family(
        "hedge_causes",
        COUNTER,
        "Second copies sent, by cause: the request was late, its replica showed no work (silent), "
        "or its class asked for a copy.",
        lambda c: {cause.value: count for cause, count in c.causes.items()},
        ("cause",),
    ),
    Family(
        "hedges_idle",
        COUNTER,
        "Second copies sent to idle replicas, which cost no budget.",
        lambda c: c.idle,
    ),
    Family(
        "hedge_idle_tokens",
        COUNTER,
        "Uncached prompt tokens of second copies that the budget did not pay.",
        lambda c: c.idle_tokens,
    ),
    Family(
        "hedge_tokens",
        COUNTER,
        "Uncached prompt tokens of second copies.",
        # If a copy never reached a replica, its tokens move from `fired_tokens` to
        # `returned_tokens`. A counter must not decrease, so the sum is reported.
        lambda c: c.fired_tokens + c.returned_tokens,
    ),
    Family(
        "hedge_returned_tokens",
        COUNTER,
        "Tokens returned to the budget, of second copies that never reached a replica.",
        lambda c: c.returned_tokens,
    ),
    Family(
        "hedge_wasted_tokens",
        COUNTER,
        "Uncached prompt tokens computed by the attempts of hedged requests that were not used.",
        lambda c: c.wasted_tokens,
    ),
    Family(
        "hedge_saved_seconds",
        COUNTER,
        "Estimated time that cancelled first attempts would still have needed to show content.",
        lambda c: c.saved_s,
    ),
    Family(
        "hedge_suspects",
        COUNTER,
        "Replicas that became suspect because they lost too many times in a row.",
        lambda c: c.suspected,
    ),
    Family(
        "hedge_policy_errors",
        COUNTER,
        "Failures of the hedging policy.",
        lambda c: c.policy_errors,
    ),
    Family(
        "hedge_dry_run_fired",
        COUNTER,
        "Dry run: second copies that would have been sent.",
        lambda c: c.would_fire,
    ),
    Family(
        "hedge_dry_run_tokens",
        COUNTER,
        "Dry run: uncached prompt tokens of second copies.",
        lambda c: c.would_fire_tokens,
    ),
    Family(
        "hedge_dry_run_won",
        COUNTER,
        "Dry run: second copies that would have shown content first.",
        lambda c: c.would_win,
    ),
    Family(
        "hedge_dry_run_saved_seconds",
        COUNTER,
        "Dry run: total time that second copies would have saved.",
        lambda c: c.would_save_s,
    ),
    Family(
        "hedge_budget_tokens",
        GAUGE,
        "Uncached prompt tokens that second copies may use now.",
        lambda c: c.budget_tokens,
    ),
    Family(
        "hedgeable_ratio",
        GAUGE,
        "Share of recent prompt tokens whose requests may be hedged.",
        lambda c: c.hedgeable_share,
    ),
    Family(
        "hedge_quantile",
        GAUGE,
        "Quantile of times to first content above which the budget pays for copies.",
        lambda c: c.quantile,
    ),
)
