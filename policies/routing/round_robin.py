"""Send requests to the replicas in turn, in proportion to their weights and evenly interleaved.

Source: nginx's smooth weighted round robin (ngx_http_upstream_round_robin.c, commit 52327e0627f4,
2012). At every pick the counter of each replica grows by its weight. The replica with the highest
counter is taken, and the sum of all weights is subtracted from its counter. Weights 5, 1, 1 give
a a b a c a a, not a a a a a b c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy


@policy("round_robin")
@dataclass(slots=True)
class RoundRobin(RoutingPolicy):
    """Smooth weighted round robin.

    The state is one number per replica, which is dropped when the replica is removed. Models that
    share replicas also share these numbers.
    """

    # With only a sample of the replicas, some replicas would miss their turn.
    sees_all: ClassVar[bool] = True

    _earned: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        earned = self._earned
        best = candidates[0]
        most = float("-inf")
        total = 0.0
        for candidate in candidates:
            weight = candidate.weight
            total += weight
            now = earned[candidate.id] = earned.get(candidate.id, 0.0) + weight
            if now > most:
                most = now
                best = candidate
        earned[best.id] = most - total
        return Pick(best, "turn")

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._earned = {id: earned for id, earned in self._earned.items() if id in replica_ids}
