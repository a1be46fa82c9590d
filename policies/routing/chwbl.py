"""Hash a request's key onto a ring of replicas, and walk on past replicas that are too busy.

Sources: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018; KubeAI
(`PrefixHash`: load <= 1.25 x (total + 1) / n) and SMG (`prefix_hash`) for its use with prompts.
Several routers share no state, but they still send the same session to the same replica. The same
holds for prompts without a session, if `access_log.salt` is the same in all routers: it seeds the
hashes of the prompts.

The key is the client's session. Without a session, the key is made of the first `depth` blocks of
the prompt. A depth that is too small covers only the shared system prompt, so all requests go to
one replica. A depth that is too large gives each turn of a conversation a new key. `bounds.py`
explains why the load bound is relative and absolute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from policies.contract import (
    C,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.bounds import Bounded, check_bounds, load_bound
from policies.routing.ring import Ring
from policies.routing.ties import least_loaded


def home(policy: Bounded, ring: Ring, key: str, candidates: Sequence[C], ctx: Context) -> Pick[C]:
    """Return the first replica on the ring after the key whose load, with this request, is in
    bounds."""
    ids = [c.id for c in candidates]
    if not ring.ids.issuperset(ids):
        ring.add(frozenset(ids))
    bound = load_bound(policy, candidates, incoming=1)
    reason = "home"
    for id in ring.walk(key):
        try:
            candidate = candidates[ids.index(id)]
        except ValueError:  # the replica is not usable now, or serves another model
            continue
        if candidate.load + 1 <= bound * candidate.weight:
            return Pick(candidate, reason)
        reason = "overload"
    # This line is reached only if the bounds of all replicas are below one request, as in a fleet
    # with very unequal weights.
    return Pick(least_loaded(candidates, ctx.rng), reason)


@policy("chwbl")
@dataclass(slots=True)
class Chwbl(RoutingPolicy):
    """The first replica on the ring after the key that is not too busy; without a key, the least
    loaded replica.
    """

    sees_all: ClassVar[bool] = True  # with only a sample, keys would move between replicas

    # The number of prompt blocks that make the key; 8 blocks of 512 bytes are about 1,000 tokens.
    depth: int = 8
    relative: float = 1.25  # The relative load bound, in multiples of the mean load.
    absolute: float = 4.0  # The absolute load bound, in requests above the mean load.

    _ring: Ring = field(default_factory=Ring, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise PolicyConfigError("depth must be a number of blocks, 1 or more", "depth")
        check_bounds(self)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        if view.session is not None:
            key = view.session
        elif view.blocks:
            # Hashes are chained: this hash covers all blocks before it.
            key = str(view.blocks[min(self.depth, len(view.blocks)) - 1])
        else:
            return Pick(least_loaded(candidates, ctx.rng), "no_key")
        return home(self, self._ring, key, candidates, ctx)

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._ring.keep(replica_ids)
        self._ring.add(replica_ids)
