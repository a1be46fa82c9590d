"""Send each request to the replica with the fewest requests under way, other clients' included.

Sources: join-the-shortest-queue as in AIBrix (`least-request`) and KubeAI (`LeastLoad`), with the
correction of vllm-project/router#177: the load is the load at the last poll plus the requests sent
since then (SMG's `least_load`), updated at each choice. So the requests of other clients
count, too. Without polled metrics, the load is the number of this router's own requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import least_loaded


@policy("least_load")
@dataclass(slots=True)
class LeastLoad(RoutingPolicy):
    """The replica with the least load / weight; ties are broken by the fewest waiting requests,
    then by a draw in proportion to the weights.
    """

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        return Pick(least_loaded(candidates, ctx.rng), "least_load")
