"""Send each request to a replica drawn at random, in proportion to the weights.

This is the baseline for all other policies. With n requests on n replicas the fullest replica holds
about log n / log log n of them (Mitzenmacher, "The Power of Two Choices in Randomized Load
Balancing", IEEE TPDS 12(10), 2001); `p2c` improves on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("random")
@dataclass(slots=True)
class Random(RoutingPolicy):
    """A draw in proportion to the weights. The policy keeps no state and ignores load."""

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        total = 0.0
        for candidate in candidates:
            total += candidate.weight
        mark = ctx.rng.random() * total
        for candidate in candidates:
            mark -= candidate.weight
            if mark < 0.0:
                return Pick(candidate, "random")
        return Pick(candidates[-1], "random")  # reached only through rounding of the weights
