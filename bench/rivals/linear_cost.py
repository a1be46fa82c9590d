"""Send each request to the replica with the lowest sum of prefill cost and decode cost.

Source: NVIDIA Dynamo's KV router (router-concepts.md):

    prefill = max(active prefill + incoming - overlap_credit * overlap, 0)
    cost    = prefill_load_scale * prefill + (active decode + incoming)

Dynamo counts blocks, this policy counts tokens, which differs by a constant factor only. With
temperature 0 the replica with the lowest cost is taken. With a higher temperature a replica is
drawn by a softmax over the costs, scaled to 0..1, so that several routers with the same outdated
metrics do not all take the same replica.

Dynamo knows the decode blocks of each sequence. Here decode is the larger of two estimates: the KV
cache in use (`kv_usage`), which includes long contexts, and the load times the mean context of a
request. If the KV usage is unknown, the second estimate is used.

`KvOccupancy`: send each request to the replica with the most free KV cache per running or waiting
request.

Source: Llumnix (OSDI'24), freeness F = (free blocks - blocks of waiting requests) / batch, inverted
into a cost: (load / weight + 1) / free share. F itself would be wrong if the free blocks are
negative, because a larger batch would make the shortage look smaller. Here the free share has a
minimum instead, so that full replicas are compared by their load.

The KV usage is an estimate that includes prompts still to be prefilled. The load is updated at each
choice. So the load spreads a burst also if the estimate does not change, because the size of the KV
cache is unknown or the prompts are cached.

`LeastInflight`: send each request to the replica with the fewest requests under way, relative to
its weight.

The rule is that of HAProxy's `leastconn` and nginx's `least_conn`. Ties are broken at random. In an
idle fleet all replicas are tied. If the first replica were always taken, that replica would get
all the light traffic, from every router.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from policies.contract import (
    C,
    Candidate,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.prompts import prompt_tokens
from policies.routing.ties import draw, lowest

# Weight of one finished request in the mean context: about the last 50 requests count.
_SHARE = 0.02


@policy("linear_cost")
@dataclass(slots=True)
class LinearCost(RoutingPolicy):
    """The replica with the least prefill_load_scale * prefill + decode, both in tokens per unit of
    weight.
    """

    prefill_load_scale: float = 1.0  # The factor of the prefill in the cost.
    overlap_credit: float = 1.0  # The credit for a cached token; with 0, caches do not count.
    # 0: the replica with the lowest cost is taken; 1: the choice is nearly random.
    temperature: float = 0.0

    # The mean tokens of a request at its end, prompt and answer. The policy's only state.
    _context: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        for option in ("prefill_load_scale", "temperature"):
            if not 0.0 <= getattr(self, option) < float("inf"):
                raise PolicyConfigError(f"{option} must be 0 or more", option)
        if not 0.0 <= self.overlap_credit <= 1.0:
            raise PolicyConfigError("overlap_credit must be a share, 0 to 1", "overlap_credit")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        incoming = prompt_tokens(view)
        credit = self.overlap_credit * view.block_tokens
        scale = self.prefill_load_scale
        context = self._context or incoming or 1.0
        held = ctx.held
        costs = []
        for c in candidates:
            weight = c.weight
            prefill = c.pending_tokens / weight + incoming
            if held and (blocks := held.get(c)):
                prefill -= min(blocks * credit, incoming)
            decode = c.load * context
            usage, size = c.kv_usage, c.kv_tokens
            if usage is not None and size is not None and usage * size > decode:
                decode = usage * size
            costs.append(scale * prefill + decode / weight + incoming)
        if self.temperature:
            return Pick(self._draw(candidates, costs, ctx), "softmax")
        return Pick(draw(lowest(candidates, costs), ctx.rng), "cheapest")

    def _draw(self, candidates: Sequence[C], costs: list[float], ctx: Context) -> C:
        least = min(costs)
        width = (max(costs) - least) * self.temperature
        if not width:
            return draw(candidates, ctx.rng)
        # The lowest cost gives exp(0) = 1, so the probabilities cannot all be 0.
        chances = [
            c.weight * exp((least - cost) / width)
            for c, cost in zip(candidates, costs, strict=True)
        ]
        return ctx.rng.choices(candidates, chances)[0]

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        if output_tokens is None:
            return
        tokens = float(prompt_tokens(view) + output_tokens)
        if self._context:
            self._context += _SHARE * (tokens - self._context)
        else:
            self._context = tokens


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
