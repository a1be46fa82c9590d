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
