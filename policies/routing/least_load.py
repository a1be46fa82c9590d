"""Send each request to the replica with the fewest requests under way, other clients' included.

Sources: join-the-shortest-queue as AIBrix (`least-request`) and KubeAI (`LeastLoad`) do it, with
the correction of vllm-project/router#177: load is the last poll's plus what was sent since (SMG's
`least_load`), counted at the choice. `least_inflight` sees this router's own requests only; this
one also sees what comes from elsewhere. Without polled signals the two are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import least_loaded


@policy("least_load")
@dataclass(slots=True)
class LeastLoad(RoutingPolicy):
    """The least load / weight; among equals the fewest that wait, then a draw by weight."""

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        return Pick(least_loaded(candidates, ctx.rng), "least_load")
