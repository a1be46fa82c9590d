"""Draw two replicas and take the one with fewer requests under way: the power of two choices.

Sources: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10),
2001 (the fullest of n holds about log log n / log 2 instead of log n / log log n); Finagle's
P2CPick (two distinct indexes, load compared) for the form. The draw is what keeps several routers
with the same stale picture from all choosing the same replica, and it costs the same at any size.
Under way is what this router has sent and what the last poll saw of others; without polled signals
it is what this router has sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("p2c")
@dataclass(slots=True)
class P2C(RoutingPolicy):
    """Of two distinct replicas drawn evenly, the lower load / weight, then the fewer that wait.

    What is a tie after that goes by weight. The draw itself ignores weights, so no replica gets
    more than 2/n of the requests: among many replicas of very different weights use least_load.
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
            # Which of the two came first is chance already: equal weights need no third draw.
            if one.weight != other.weight:
                is_one = random() * (one.weight + other.weight) < one.weight
                return Pick(one if is_one else other, "tie")
            return Pick(one, "tie")
        return Pick(one if one_load < other_load else other, "lower")
