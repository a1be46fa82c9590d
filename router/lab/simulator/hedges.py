"""Counts of hedges (second copies of requests), summed over all routers of a run.

Must never: count anything itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from router.observe.hedge_counts import HedgeCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedges:
    """The sums of the `HedgeCounts` of all routers.

    `*_tokens` are prompt tokens that were not cached; `*_s` are seconds.
    """

    fired: int
    won: int
    lost: int
    failed: int
    suppressed: dict[str, int]  # number of hedges that were not sent, by reason
    fired_tokens: int
    idle_tokens: float  # tokens of copies that the budget did not pay
    wasted_tokens: int
    saved_s: float
    suspected: int
    would_fire: int

    @classmethod
    def of(cls, counts: Iterable[HedgeCounts]) -> Hedges:
        """The sums of the given counts."""
        all_counts = list(counts)
        suppressed: dict[str, int] = {}
        for one in all_counts:
            for why, count in one.suppressed.items():
                if count:
                    suppressed[str(why)] = suppressed.get(str(why), 0) + count
        return cls(
            fired=sum(one.fired for one in all_counts),
            won=sum(one.won for one in all_counts),
            lost=sum(one.lost for one in all_counts),
            failed=sum(one.failed for one in all_counts),
            suppressed=suppressed,
            fired_tokens=sum(one.fired_tokens for one in all_counts),
            idle_tokens=sum(one.idle_tokens for one in all_counts),
            wasted_tokens=sum(one.wasted_tokens for one in all_counts),
            saved_s=sum(one.saved_s for one in all_counts),
            suspected=sum(one.suspected for one in all_counts),
            would_fire=sum(one.would_fire for one in all_counts),
        )
