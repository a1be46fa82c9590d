"""Send each request to the replica with the most free KV cache per running or waiting request.

Source: Llumnix (OSDI'24), freeness F = (free blocks - blocks of waiting requests) / batch, inverted
into a cost: (load / weight + 1) / free share. F itself would be wrong if the free blocks are
negative, because a larger batch would make the shortage look smaller. Here the free share has a
minimum instead, so that full replicas are compared by their load.

The KV usage is an estimate that includes prompts still to be prefilled. The load is updated at each
choice. So the load spreads a burst also if the estimate does not change, because the size of the KV
cache is unknown or the prompts are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import draw, lowest

_LEAST_FREE = 0.02  # a replica with a smaller free share would preempt, so it counts as full


@policy("kv_occupancy")
@dataclass(slots=True)
class KvOccupancy(RoutingPolicy):
    """The least (load / weight + 1) / free share of the KV cache.

    A replica that does not report its usage gets the mean usage of the others. If such a replica
    counted as empty, it would get every request; if it counted as full, it would get no request. If
    no replica reports its usage, the policy chooses like `least_load`.
    """

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        free = [
            None if c.kv_usage is None else max(1.0 - c.kv_usage, _LEAST_FREE) for c in candidates
        ]
        known = [share for share in free if share is not None]
        usual = sum(known) / len(known) if known else 1.0
        costs = [
            (c.load / c.weight + 1.0) / (usual if share is None else share)
            for c, share in zip(candidates, free, strict=True)
        ]
        return Pick(draw(lowest(candidates, costs), ctx.rng), "kv_occupancy" if known else "load")
