"""Send each request to the replica with the fewest requests under way, relative to its weight.

The rule is that of HAProxy's `leastconn` and nginx's `least_conn`. Ties are broken at random: an
idle fleet is one large tie, and always taking its first replica would give that one all the light
traffic and, with several routers, the same one from each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("least_inflight")
@dataclass(slots=True)
class LeastInflight(RoutingPolicy):
    """The least inflight / weight of all; among equals a draw in proportion to the weights."""

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        best = candidates[0]
        least = float("inf")
        tied = 0.0  # the summed weights of all replicas at `least`; 0: only one so far
        for candidate in candidates:
            load = candidate.inflight / candidate.weight
            if load < least:
                best = candidate
                least = load
                tied = 0.0
            elif load == least:
                # Reservoir of one (Chao 1982): the newcomer wins with its share of the weights, so
                # that no list of the tied is needed. `best` has been drawn from `tied` already.
                tied = (tied or best.weight) + candidate.weight
                if ctx.rng.random() * tied < candidate.weight:
                    best = candidate
        return Pick(best, "least_inflight")
