"""Hash a request's key onto a ring of replicas; walk on past those that have their share already.

Sources: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018; KubeAI
(`PrefixHash`: load <= 1.25 x (total + 1) / n) and SMG (`prefix_hash`) for its use with prompts.
Nothing is learned or shared: any number of routers send the same prompt to the same replica.

The key is the client's session or, without one, the prompt down to a fixed depth. Too short a
depth sees the shared system prompt only and sends everybody to one place; too long a one sees each
turn of a conversation as something new. Relative bounds alone measure the noise between routers
(smg#2150) and give an idle fleet no affinity at all, hence the absolute margin beside it.
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
    """The first replica on the key's walk that keeps its bound with one request more."""
    ids = [c.id for c in candidates]
    if not ring.ids.issuperset(ids):
        ring.add(frozenset(ids))
    bound = load_bound(policy, candidates, incoming=1)
    reason = "home"
    for id in ring.walk(key):
        try:
            candidate = candidates[ids.index(id)]
        except ValueError:  # not fit now, or of another model
            continue
        if candidate.load + 1 <= bound * candidate.weight:
            return Pick(candidate, reason)
        reason = "overload"
    # Only where shares are below one request: a fleet of very unequal weights.
    return Pick(least_loaded(candidates, ctx.rng), reason)


@policy("chwbl")
@dataclass(slots=True)
class Chwbl(RoutingPolicy):
    """The first replica clockwise of the key with room; without a key the least loaded."""

    sees_all: ClassVar[bool] = True  # a sample would move the keys

    depth: int = 8  # blocks of the prompt that make the key; 8 x 512 bytes are about 1,000 tokens
    relative: float = 1.25
    absolute: float = 4.0  # requests

    _ring: Ring = field(default_factory=Ring, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise PolicyConfigError("depth is a number of blocks, 1 or more", "depth")
        check_bounds(self)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        if view.session is not None:
            key = view.session
        elif view.blocks:
            # Hashes are chained: this one stands for all blocks before it.
            key = str(view.blocks[min(self.depth, len(view.blocks)) - 1])
        else:
            return Pick(least_loaded(candidates, ctx.rng), "no_key")
        return home(self, self._ring, key, candidates, ctx)

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._ring.keep(replica_ids)
        self._ring.add(replica_ids)
