"""Send each request to the replica with the most free KV cache per running or waiting request.

Source: Llumnix (OSDI'24), freeness F = (free blocks - blocks of waiting requests) / batch, inverted
into a cost: (load / weight + 1) / free share. As a quotient, F would be wrong when the free room is
negative (a larger batch would make a shortage look smaller). The cost's divisor has a minimum
instead, so that full replicas are compared by their load.

The usage is the replica's estimate, which includes prompts that are still to be prefilled. The
division by the load, which is counted at every choice, spreads a burst where the estimate cannot:
if the size of the KV cache is unknown, or if prompts are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import draw, lowest

_LEAST_FREE = 0.02  # below it a replica preempts rather than serves: full is full


@policy("kv_occupancy")
@dataclass(slots=True)
class KvOccupancy(RoutingPolicy):
    """The least (load / weight + 1) / free share of the KV cache.

    A replica that does not report its usage gets the mean of the others: if it counted as empty, it
    would get every request; if it counted as full, none. If no replica reports, this is least load.
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
