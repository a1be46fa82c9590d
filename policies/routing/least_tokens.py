"""Send each request to the replica where the fewest uncached prompt tokens wait for prefill.

Sources: Mooncake (FAST'25, Algorithm 1: the queue of an instance is the prefill still to be done
there) and llm-d's in-flight load producer, which counts uncached tokens and releases them at the
first token. Three long prompts may need more prefill than ten short ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import C, Context, Pick, RequestView, RoutingPolicy, policy
from policies.routing.ties import draw, lowest


@policy("least_tokens")
@dataclass(slots=True)
class LeastTokens(RoutingPolicy):
    """The replica with the fewest pending tokens / weight; ties are broken by the least load /
    weight, then by a draw.

    If the tokens of prompts are not estimated, no tokens are ever pending, and the policy equals
    `least_load`.
    """

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        tied = lowest(candidates, [c.pending_tokens / c.weight for c in candidates])
        if len(tied) > 1:
            tied = lowest(tied, [c.load / c.weight for c in tied])
        return Pick(draw(tied, ctx.rng), "least_tokens")
