"""Send each request where each one under way has the most free KV cache.

Source: Llumnix (OSDI'24), freeness F = (free blocks - blocks of what waits) / batch, turned over
into a cost: (load / weight + 1) / free share. As a quotient it turns round where the room is gone
(a larger batch would make a shortage look smaller); the cost's divisor has a floor instead, so that
full replicas are told apart by their load.

The division by the load, which is counted at every choice, is what keeps a poll that is a second
old from drawing a second's worth of requests to one replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Candidate, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import draw, lowest

_LEAST_FREE = 0.02  # below it a replica preempts rather than serves: full is full


@policy("kv_occupancy")
@dataclass(slots=True)
class KvOccupancy(RoutingPolicy):
    """The least (load / weight + 1) / free share of the KV cache.

    A replica that does not tell its usage is taken to be like the mean of those that do: as empty
    it would draw everything, as full nothing. Where nobody tells, this is least load.
    """

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        free = [_free(c) for c in candidates]
        known = [share for share in free if share is not None]
        usual = sum(known) / len(known) if known else 1.0
        costs = [
            (c.load / c.weight + 1.0) / (usual if share is None else share)
            for c, share in zip(candidates, free, strict=True)
        ]
        return Pick(draw(lowest(candidates, costs), ctx.rng), "kv_occupancy" if known else "load")


def _free(candidate: Candidate) -> float | None:
    """The share of the KV cache that is left when what we sent has been prefilled."""
    usage = candidate.kv_usage
    if usage is None:
        return None
    if candidate.kv_tokens:
        usage += candidate.pending_tokens / candidate.kv_tokens
    return max(1.0 - usage, _LEAST_FREE)
