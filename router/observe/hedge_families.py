"""What was counted of hedging, as Prometheus families.

Counters of a dry run have families of their own: a team that only looks must not find hedges among
those that were sent, nor the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from router.observe.hedge_counts import HedgeCounts


def hedging_families(counts: HedgeCounts) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "hedgerow_hedges_ended",
        "Second copies ended: they won (showed content first), lost, or failed.",
        labels=("outcome",),
    )
    for outcome in ("won", "lost", "failed"):
        ended.add_metric((outcome,), getattr(counts, outcome))
    yield ended
    suppressed = CounterMetricFamily(
        "hedgerow_hedges_suppressed",
        "Second copies that were due and not sent, by why.",
        labels=("reason",),
    )
    for reason, count in counts.suppressed.items():
        suppressed.add_metric((reason.value,), count)
    yield suppressed
    for name, help_text, value in (
        ("hedges_fired", "Second copies sent.", counts.fired),
        (
            "hedge_tokens",
            "Uncached prompt tokens of second copies.",
            counts.fired_tokens + counts.returned_tokens,  # the first alone may fall
        ),
        (
            "hedge_returned_tokens",
            "Those of copies that never reached a replica: the budget got them back.",
            counts.returned_tokens,
        ),
        (
            "hedge_wasted_tokens",
            "Uncached prompt tokens computed for copies, and beside copies, that nobody was shown.",
            counts.wasted_tokens,
        ),
        (
            "hedge_saved_seconds",
            "What those cancelled would still have needed to show content, as estimated.",
            counts.saved_s,
        ),
        (
            "hedge_suspects",
            "Replicas that lost so many races in a row that they became suspect.",
            counts.suspected,
        ),
        ("hedge_policy_errors", "Failures of the hedging policy.", counts.policy_errors),
        ("hedge_dry_run_fired", "Dry run: second copies that would have gone.", counts.would_fire),
        (
            "hedge_dry_run_tokens",
            "Dry run: uncached prompt tokens of those.",
            counts.would_fire_tokens,
        ),
        (
            "hedge_dry_run_won",
            "Dry run: those that would have shown content first.",
            counts.would_win,
        ),
        (
            "hedge_dry_run_saved_seconds",
            "Dry run: how much earlier, all together.",
            counts.would_save_s,
        ),
    ):
        yield CounterMetricFamily(f"hedgerow_{name}", help_text, value=value)
    for name, help_text, level in (
        (
            "hedge_budget_tokens",
            "Uncached prompt tokens that second copies may use now.",
            counts.budget_tokens,
        ),
        (
            "hedgeable_ratio",
            "Share of all prompt tokens lately whose requests may be hedged.",
            counts.hedgeable_share,
        ),
        (
            "hedge_quantile",
            "Quantile of first contents from which on the budget pays for copies.",
            counts.quantile,
        ),
    ):
        yield GaugeMetricFamily(f"hedgerow_{name}", help_text, value=level)
