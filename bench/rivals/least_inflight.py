"""Send each request to the replica with the fewest requests under way, relative to its weight.

The rule is that of HAProxy's `leastconn` and nginx's `least_conn`. Ties are broken at random. In an
idle fleet all replicas are tied. If the first replica were always taken, that replica would get
all the light traffic, from every router.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("least_inflight")
@dataclass(slots=True)
class LeastInflight(RoutingPolicy):
    """The replica with the least inflight / weight; ties are broken by a draw in proportion to the
    weights."""

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        best = candidates[0]
        least = float("inf")
        tied = 0.0  # the summed weights of all replicas at `least`; 0: only one replica so far
        for candidate in candidates:
            load = candidate.inflight / candidate.weight
            if load < least:
                best = candidate
                least = load
                tied = 0.0
            elif load == least:
                # Weighted reservoir sampling of one item (Chao 1982): the new candidate replaces
                # `best` with its share of the weights so far, so no list of ties is needed.
                tied = (tied or best.weight) + candidate.weight
                if ctx.rng.random() * tied < candidate.weight:
                    best = candidate
        return Pick(best, "least_inflight")
