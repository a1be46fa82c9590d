"""Send each request to the replica with the least prefill work times batch size.

Source: LMetric (OSDI'26, arXiv 2603.15202); Dynamo ships it as `router_selection_policy=lmetric`:

    cost = (uncached tokens pending there, this request's included, + 1) * (load + 1)

A product needs no weights for cache and load, because a constant factor does not change the order.
The two terms "+ 1" prevent that an idle replica or a full hit makes the cost 0. Pending tokens and
load are updated at each choice (as in SMG and llm-d), so each request of a burst sees the
requests before it. A busy replica that holds the prompt is not chosen if its product is larger.

The product itself has no limits, so there are four more rules:
- A full replica is not taken while another is not full. Full means that too many requests wait for
  a first token, or that no slot is free.
- A replica whose KV cache is nearly full would have to preempt requests. Such a replica is not
  taken while at least three in four replicas have room. If more are full, the rule does not apply,
  because all requests until the next poll would go to the few with room (simulated at 90 % of
  capacity with the usage of the last poll: p90 TTFT 1.1 s with the rule, 0.39 s without). The rule
  also does not apply to a replica that holds at least half of the prompt. Otherwise the other
  caches fill with copies, and no replica keeps a prefix (measured: hit rate 0.68 -> 0.37).
- A replica that got more than its share of the recent requests is not taken because of its cache.
  If all prompts begin with the same text, the first holder has the lowest cost whenever it is idle,
  and at low load it gets every request (production-stack#957). A replica that is taken instead
  becomes a holder too, at the cost of one prefill.
- Weights, which slow start lowers, divide the existing load of a replica, not the tokens of the
  request. So idle replicas have equal costs, and the draw among them is by weight.
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

# When there are this many recent requests per replica, all counts are halved. So the last 32 to 64
# requests per replica decide.
_RECENT: Final = 64
_NOBODY: Final[Mapping[Any, int]] = {}


@dataclass
class KvAware(RoutingPolicy):
    """The least (pending / weight + miss * uncached + 1) * (load / weight + batch), where `miss` is
    `miss_cost`, increased while all replicas have a backlog (`crowding`).

    With `miss_cost` 1, `batch` 1 and `crowding` 0 this is LMetric. Equal costs are drawn by weight.
    The state is one number per replica.
    """

    # The cost of an uncached token. This may exceed the cost of its prefill, because a miss also
    # evicts cached prefixes of other requests.
    miss_cost: float = 2.0
    # The increase of `miss_cost` while prefill waits at all replicas, because a miss delays the
    # requests behind it. The increase is multiplied by the least pending prefill of all replicas,
    # in multiples of the request's prompt. With the mean or the median, a burst of requests with
    # one prompt would stay at one replica.
    crowding: float = 20.0
    # A number added to each batch. With a higher value, small batches differ less.
    batch: float = 2.0
    # From this KV cache usage on, a replica counts as nearly full; vLLM preempts at 1.
    kv_full: float = 0.95
    # A replica with this number of requests without a first token, per unit of weight, is full.
    queue_depth: int = 64
    # A replica has too many recent requests only if it exceeds this multiple of the usual number.
    relative: float = 1.25
    # A replica has too many recent requests only if it exceeds the usual number by this many.
    absolute: float = 8.0

    _recent: dict[str, float] = field(init=False, repr=False)
    _total: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # These fields are set here because a compiled dataclass has no class attributes for their
        # defaults.
        self._recent = {}
        self._total = 0.0
        if not 1.0 <= self.miss_cost < float("inf"):
            raise PolicyConfigError("miss_cost must be a factor, 1 or more", "miss_cost")
        if not 0.0 <= self.crowding < float("inf"):
            raise PolicyConfigError("crowding must be a factor, 0 or more", "crowding")
        if not 0.0 < self.batch < float("inf"):
            raise PolicyConfigError("batch must be a number of requests, above 0", "batch")
        if not 0.0 < self.kv_full <= 1.0:
            raise PolicyConfigError("kv_full must be a share, above 0 and up to 1", "kv_full")
        if self.queue_depth < 1:
            raise PolicyConfigError(
                "queue_depth must be a number of requests, 1 or more", "queue_depth"
            )
        if not 1.0 <= self.relative < float("inf"):
            raise PolicyConfigError("relative must be a factor, 1 or more", "relative")
        if not 0.0 <= self.absolute < float("inf"):
            raise PolicyConfigError("absolute must be a number of requests, 0 or more", "absolute")

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        held, rng = ctx.held, ctx.rng
        chosen = self._cheapest(view, candidates, held, rng)
        reason = "cheapest"
        # Checking the cheapest replica first gives the same result, and is quick while no replica
        # is full.
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
        """Whether the KV cache of a replica is nearly full."""
        usage = candidate.kv_usage
        return usage is not None and usage >= self.kv_full

    def _has_more_than(self, candidate: Candidate, usual: float) -> bool:
        recent = self._recent.get(candidate.id, 0.0)
        return recent > usual * self.relative and recent > usual + self.absolute

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        recent = self._recent
        # A request counts 1 / weight, so that the usual number is the same for all replicas.
        share = 1.0 / candidate.weight
        recent[candidate.id] = recent.get(candidate.id, 0.0) + share
        self._total += share
        if self._total > _RECENT * len(recent):
            for id in recent:
                recent[id] /= 2.0
            self._total = sum(recent.values())

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._recent = {id: self._recent.get(id, 0.0) for id in sorted(replica_ids)}
        self._total = sum(self._recent.values())


# This is not a decorator, because mypyc does not natively compile classes with unknown decorators.
policy("kv_aware")(KvAware)
