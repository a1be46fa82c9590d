"""Send each request where new prefill work times the batch it joins is least.

Source: LMetric (OSDI'26, arXiv 2603.15202); Dynamo ships it as `router_selection_policy=lmetric`:

    cost = (uncached tokens pending there, this request's included, + 1) * (load + 1)

A product needs no weights between cache and load: a scale would cancel. The added ones keep an idle
replica and a full hit from making everything 0. Pending tokens and load are counted at the choice
(SMG, llm-d), so the siblings of one burst see each other, and a holder that is busy is left for one
that is not as soon as the difference in work says so.

Four guards stand beside the product, which itself knows no limits:
- a replica that is full is not taken while another is not: too many waiting for a first token, or
  no slot free in its batch;
- one whose KV cache is nearly used up (it would have to preempt) is not taken while three in four
  have room. Where more are full, the guard stands back: all of a second's requests would go to the
  few that have room (simulated at 90 % of capacity, with the usage of the last poll: p90 of the
  first token 1.1 s with that, 0.39 s without). Nor does it count for a replica
  that holds most of the prompt: who leaves full holders fills the others' caches with copies, and
  in the end nobody holds anything (measured: hit rate 0.68 -> 0.37);
- a replica that has had more than its part of the recent requests is not taken because of its
  cache. Where all prompts begin alike, the first holder is the cheapest whenever it is idle, and at
  low load gets everything (production-stack#957). Leaving it now and then makes the others holders,
  too, and the cost of that is one prefill each;
- weights, which slow start lowers, divide what a replica has, not what the request adds: among idle
  replicas all costs are equal and the draw goes by weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from policies.base import RoutingPolicy
from policies.contract import policy
from policies.facts import C, Candidate, Context, Pick, RequestView
from policies.registry import PolicyConfigError
from policies.routing.costs import cheapest, least_pending
from policies.routing.prompts import prompt_tokens

# Recent requests: counts are halved when there are so many of them per replica, so that the last
# 32 to 64 decide.
_RECENT: Final = 64
_NOBODY: Final[Mapping[Any, int]] = {}


@dataclass
class KvAware(RoutingPolicy):
    """The least (pending / weight + miss * uncached + 1) * (load / weight + batch), where `miss` is
    `miss_cost`, more while the whole fleet has a backlog (`crowding`).

    With `miss_cost` and `batch` at 1 and `crowding` at 0 that is LMetric. Equal costs are drawn by
    weight. State: one number per replica.
    """

    # Uncached tokens may count for more than their prefill: they also evict what others come for.
    miss_cost: float = 2.0
    # ... and for the more, the more waits everywhere, since a miss delays everybody behind it: so
    # many times the least pending prefill of all, in prompts like this one. (With the mean or the
    # median a burst of one prompt would hold itself together.)
    crowding: float = 20.0
    # The batch that an idle replica is taken to have: the more, the less small batches differ.
    batch: float = 2.0
    kv_full: float = 0.95  # KV cache usage from which a replica counts as full; vLLM preempts at 1
    queue_depth: int = 64  # requests without a first token, per unit of weight
    relative: float = 1.25  # a part of the recent requests that is too much: above this many times
    absolute: float = 8.0  # ... the usual number, and above it by so many

    _recent: dict[str, float] = field(init=False, repr=False)
    _total: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Set here: a compiled dataclass has no class attribute that a default could come from.
        self._recent = {}
        self._total = 0.0
        if not 1.0 <= self.miss_cost < float("inf"):
            raise PolicyConfigError("miss_cost is a factor, 1 or more", "miss_cost")
        if not 0.0 <= self.crowding < float("inf"):
            raise PolicyConfigError("crowding is a factor, 0 or more", "crowding")
        if not 0.0 < self.batch < float("inf"):
            raise PolicyConfigError("batch is a number of requests, above 0", "batch")
        if not 0.0 < self.kv_full <= 1.0:
            raise PolicyConfigError("kv_full is a share, above 0 and up to 1", "kv_full")
        if self.queue_depth < 1:
            raise PolicyConfigError("queue_depth is a number of requests, 1 or more", "queue_depth")
        if not 1.0 <= self.relative < float("inf"):
            raise PolicyConfigError("relative is a factor, 1 or more", "relative")
        if not 0.0 <= self.absolute < float("inf"):
            raise PolicyConfigError("absolute is a number of requests, 0 or more", "absolute")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        held, rng = ctx.held, ctx.rng
        chosen = self._cheapest(view, candidates, held, rng)
        reason = "cheapest"
        # Looking at the cheapest first comes to the same and costs nothing while none is full.
        if self._is_full(chosen):
            rest = [c for c in candidates if not self._is_full(c)]
            if rest:
                candidates = rest
                chosen = self._cheapest(view, candidates, held, rng)
                reason = "full"
        if self._lacks_room(chosen):
            depth = held.get(chosen, 0) if held else 0
            if not depth * view.block_tokens * 2.0 >= prompt_tokens(view) > 0:
                rest = [c for c in candidates if not self._lacks_room(c)]
                lacking = len(candidates) - len(rest)
                if rest and lacking <= max(1, len(candidates) // 4):
                    candidates = rest
                    chosen = self._cheapest(view, candidates, held, rng)
                    reason = "no room"
        if held and held.get(chosen):
            if self._has_more_than(chosen, self._total / (len(self._recent) or 1)):
                other = self._cheapest(view, candidates, _NOBODY, rng)
                if self._has_more_than(chosen, self._recent.get(other.id, 0.0)):
                    return Pick(other, "spread")
            return Pick(chosen, "cached")
        return Pick(chosen, reason)

    def _cheapest(
        self, view: RequestView, candidates: Sequence[C], held: Mapping[Any, int], rng: Random
    ) -> C:
        tokens = prompt_tokens(view)
        miss_cost = self.miss_cost
        if held and tokens:
            miss_cost *= 1.0 + self.crowding * least_pending(candidates) / tokens
        new = miss_cost * tokens + 1.0
        spared = miss_cost * view.block_tokens
        return cheapest(candidates, held, new, spared, self.batch, rng)

    def _is_full(self, candidate: Candidate) -> bool:
        if candidate.slots is not None and candidate.load >= candidate.slots:
            return True
        return candidate.waiting >= self.queue_depth * candidate.weight

    def _lacks_room(self, candidate: Candidate) -> bool:
        """In its KV cache."""
        usage = candidate.kv_usage
        return usage is not None and usage >= self.kv_full

    def _has_more_than(self, candidate: Candidate, usual: float) -> bool:
        recent = self._recent.get(candidate.id, 0.0)
        return recent > usual * self.relative and recent > usual + self.absolute

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        recent = self._recent
        share = 1.0 / candidate.weight  # so that everybody's usual number is the same
        recent[candidate.id] = recent.get(candidate.id, 0.0) + share
        self._total += share
        if self._total > _RECENT * len(recent):
            for id in recent:
                recent[id] /= 2.0
            self._total = sum(recent.values())

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._recent = {id: self._recent.get(id, 0.0) for id in sorted(replica_ids)}
        self._total = sum(self._recent.values())


# Not as a decorator: the compiler makes no native class of a class that has one it does not know.
policy("kv_aware")(KvAware)
