"""Give each replica several scores from 0 to 1 and take the best weighted sum.

Source: llm-d's scheduler (llm-d-router, pkg/epp; default profile `2 queue + 2 kv + 3 prefix`, best
score first, ties shuffled). The formulas of its scorers:

    queue   (most - waiting) / (most - least), over the candidates; 1 if all are equal
    kv      1 - KV usage
    prefix  leading blocks held / blocks of the prompt
    load    the formula of queue, with the requests under way (`active-request`)
    tokens  1 - pending tokens / 4,194,304 (`token-load`)

llm-d treats a replica without metrics as broken (llm-d-router#2100). Here a replica with unknown
KV usage gets the mean score of the replicas with known usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from policies.contract import (
    C,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.ties import least_loaded

# From this number of pending tokens on, the `tokens` score is 0, as in llm-d.
_TOKENS = 4_194_304


@policy("weighted")
@dataclass(slots=True)
class Weighted(RoutingPolicy):
    """The replica with the highest sum of weight x score; ties are broken by the least load. The
    options are the weights.
    """

    queue: float = 2.0  # The weight of few waiting requests.
    kv: float = 2.0  # The weight of a free KV cache.
    prefix: float = 3.0  # The weight of a cached prefix.
    load: float = 0.0  # The weight of few requests under way.
    tokens: float = 0.0  # The weight of few pending tokens.

    def __post_init__(self) -> None:
        weights = {name: getattr(self, name) for name in self.__slots__}
        for name, weight in weights.items():
            if not 0.0 <= weight < float("inf"):
                raise PolicyConfigError(f"{name} must be a weight, 0 or more", name)
        if not any(weights.values()):
            raise PolicyConfigError("at least one weight must be above 0")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        scores = [0.0] * len(candidates)
        if self.queue:
            waiting = [c.waiting / c.weight for c in candidates]
            scores = list(map(add, scores, _spread(waiting, self.queue)))
        if self.load:
            load = [c.load / c.weight for c in candidates]
            scores = list(map(add, scores, _spread(load, self.load)))
        if self.kv:
            scores = list(map(add, scores, _free([c.kv_usage for c in candidates], self.kv)))
        if self.tokens:
            pending = [c.pending_tokens / c.weight / _TOKENS for c in candidates]
            scores = list(map(add, scores, [self.tokens * max(1.0 - p, 0.0) for p in pending]))
        if self.prefix and ctx.held and view.blocks:
            held, share = ctx.held, self.prefix / len(view.blocks)
            scores = list(map(add, scores, [held.get(c, 0) * share for c in candidates]))
        best = max(scores)
        if scores.count(best) == 1:
            return Pick(candidates[scores.index(best)], "best")
        tied = [c for c, score in zip(candidates, scores, strict=True) if score == best]
        return Pick(least_loaded(tied, ctx.rng), "tie")


def _spread(values: list[float], weight: float) -> list[float]:
    """Return the score of each value: `weight` for the lowest value, 0 for the highest, linear
    between them."""
    most = max(values)
    width = most - min(values)
    if not width:
        return [weight] * len(values)
    scale = weight / width
    return [(most - value) * scale for value in values]


def _free(usages: list[float | None], weight: float) -> list[float]:
    known = [usage for usage in usages if usage is not None]
    usual = sum(known) / len(known) if known else 1.0
    return [weight * (1.0 - (usual if usage is None else usage)) for usage in usages]
