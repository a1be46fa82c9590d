"""Send a request to the replica that holds most of its prompt, unless that replica is too busy.

Source: the cache-aware policy of SGLang's router (v0.4 blog; today SMG and vLLM Router): the
longest match above a threshold, with two load margins. Four of its known problems are avoided:
- A request without a match goes to the least loaded replica. SGLang sent it to the replica with the
  smallest prefix tree, so all such requests went to one worker (sglang#14532, #14305).
- The load of each holder is checked, not the load of the whole fleet. So one overloaded replica
  does not disable affinity for all (sglang#32195). The check compares with the mean load, not the
  least load, so that one new, empty replica does not make every holder look overloaded.
- The bound is relative and absolute, because a ratio of small numbers is noise (smg#2150).
- If more than half of the candidates hold the same length of the prefix, the prefix is ignored. It
  is then shared by all clients, and a restarted replica, which does not hold it, would never get a
  request again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract import (
    C,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.bounds import check_bounds, load_bound
from policies.routing.ties import least_loaded


@policy("prefix_affinity")
@dataclass(slots=True)
class PrefixAffinity(RoutingPolicy):
    """The replica that holds most of the prompt, at least `min_match` of it, and is not too busy.

    A replica is too busy if its load / weight is above `relative` times the mean and above the mean
    plus `absolute`. If several replicas hold equally much, the least loaded of them is taken. If no
    replica qualifies, or more than half of the candidates hold equally much, the least loaded of
    all candidates is taken.
    """

    # The share of the prompt's blocks that a replica must hold.
    min_match: float = 0.3
    relative: float = 1.25  # The relative load bound, in multiples of the mean load.
    # The absolute load bound, in requests above the mean load.
    absolute: float = 4.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_match <= 1.0:
            raise PolicyConfigError("min_match must be a share, 0 to 1", "min_match")
        check_bounds(self)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        held = ctx.held
        least = max(self.min_match * len(view.blocks), 1.0)
        holders = [c for c in candidates if held.get(c, 0) >= least] if held else []
        if not holders:
            return Pick(least_loaded(candidates, ctx.rng), "miss")
        bound = load_bound(self, candidates)
        holders = [c for c in holders if c.load <= bound * c.weight]
        if not holders:
            return Pick(least_loaded(candidates, ctx.rng), "overload")
        deepest = max([held[c] for c in holders])
        holders = [c for c in holders if held[c] == deepest]
        if 2 * len(holders) > len(candidates):
            return Pick(least_loaded(candidates, ctx.rng), "common")
        return Pick(least_loaded(holders, ctx.rng), "hit")
