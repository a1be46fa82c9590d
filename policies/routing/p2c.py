"""Draw two replicas and take the one with fewer requests under way: the power of two choices.

Sources: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10),
2001 (the fullest of n replicas holds about log log n / log 2 requests instead of
log n / log log n); Finagle's P2CPick (two distinct indexes whose loads are compared). The random
draw prevents that several routers with the same outdated metrics all choose the same replica. The
cost of a draw does not depend on the size of the fleet. Requests under way are this router's own
and those of other clients at the last poll; without polled metrics only the router's own are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("p2c")
@dataclass(slots=True)
class P2C(RoutingPolicy):
    """Draws two distinct replicas and takes the one with the lower load / weight; ties are broken
    by the fewer waiting requests, then by a draw in proportion to the weights.

    The draw of the two replicas ignores weights, so none of n replicas gets more than 2/n of the
    requests. In a large fleet with very different weights, use `least_load`.
    """

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        count = len(candidates)
        if count == 1:
            return Pick(candidates[0], "only")
        random = ctx.rng.random
        first = int(random() * count)
        second = int(random() * (count - 1))
        if second >= first:
            second += 1
        one = candidates[first]
        other = candidates[second]
        one_load = one.load / one.weight
        other_load = other.load / other.weight
        if one_load == other_load:
            one_load = one.waiting / one.weight
            other_load = other.waiting / other.weight
        if one_load == other_load:
            # The order of the two replicas is random already, so equal weights need no third draw.
            if one.weight != other.weight:
                is_one = random() * (one.weight + other.weight) < one.weight
                return Pick(one if is_one else other, "tie")
            return Pick(one, "tie")
        return Pick(one if one_load < other_load else other, "lower")
