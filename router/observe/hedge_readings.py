"""The numbers of hedging as families for /metrics.

Must never: leave a number of `HedgeCounts` unshown, or mix units within a family.
"""

from __future__ import annotations

from collections.abc import Iterator

from router.observe.collector import Reading
from router.observe.hedge_counts import HedgeCounts


def hedge_readings(counts: HedgeCounts, policy: str) -> Iterator[Reading]:
    """`policy`: the one in force, by name."""
    n = counts
    yield Reading(
        "hedges",
        "Second copies of requests that were sent, and how their races ended.",
        "event",
        {"fired": n.fired, "won": n.won, "lost": n.lost, "failed": n.failed},
        is_counter=True,
    )
    yield Reading(
        "hedges_suppressed",
        "Times that a copy was due and none went, by reason.",
        "reason",
        {reason.value: float(count) for reason, count in n.suppressed.items()},
        is_counter=True,
    )
    yield Reading(
        "hedge_tokens",
        "Uncached prompt tokens of copies, and of whatever was cancelled for a quicker one.",
        "kind",
        {"fired": n.fired_tokens, "wasted": n.wasted_tokens},
        is_counter=True,
    )
    yield Reading(
        "hedge_saved_seconds",
        "Estimated time to first content that copies saved, or would have saved in a dry run.",
        "run",
        {"real": n.saved_s, "dry": n.would_save_s},
        is_counter=True,
    )
    yield Reading(
        "hedges_dry_run",
        "Copies that would have been sent, and would have been first.",
        "event",
        {"fired": n.would_fire, "won": n.would_win},
        is_counter=True,
    )
    yield Reading(
        "hedge_dry_run_tokens",
        "Uncached prompt tokens of copies that would have been sent.",
        "kind",
        {"fired": n.would_fire_tokens},
        is_counter=True,
    )
    yield Reading(
        "hedge_problems",
        "Errors of the hedging policy; replicas found suspect because copies always outran them.",
        "problem",
        {"policy_error": n.policy_errors, "replica_suspected": n.suspected},
        is_counter=True,
    )
    for name, help_text, value in (
        ("hedge_budget_tokens", "Prompt tokens that copies may use now.", n.budget_tokens),
        ("hedgeable_ratio", "Share of prompt tokens that may be hedged.", n.hedgeable_share),
        ("hedge_quantile_ratio", "First contents later than this may be hedged.", n.quantile),
    ):
        yield Reading(name, help_text, "policy", {policy: value})
