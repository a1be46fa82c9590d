"""Keep a client's session at one replica while that replica is not too busy.

Sources: production-stack's `session` and vLLM Router's `consistent_hash` (a hash ring of session
keys). These policies ignore load. Here, if the replica of a session is too busy, a request goes to
the next replica on the ring, and later requests return when the first replica has room again. The
key is the session key that the client sends. Headers or fields that are unique to each request are
never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from policies.contract import (
    C,
    Context,
    Pick,
    RequestView,
    RoutingPolicy,
    policy,
)
from policies.routing.bounds import check_bounds
from policies.routing.chwbl import home
from policies.routing.ring import Ring
from policies.routing.ties import least_loaded


@policy("session")
@dataclass(slots=True)
class Session(RoutingPolicy):
    """The first replica on the ring after the session key that is not too busy; without a session,
    the least loaded replica.
    """

    sees_all: ClassVar[bool] = True  # with only a sample, sessions would move between replicas

    relative: float = 1.25  # The relative load bound, in multiples of the mean load.
    absolute: float = 4.0  # The absolute load bound, in requests above the mean load.

    _ring: Ring = field(default_factory=Ring, init=False, repr=False)

    def __post_init__(self) -> None:
        check_bounds(self)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        if view.session is None:
            return Pick(least_loaded(candidates, ctx.rng), "no_session")
        return home(self, self._ring, view.session, candidates, ctx)

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        self._ring.keep(replica_ids)
        self._ring.add(replica_ids)
