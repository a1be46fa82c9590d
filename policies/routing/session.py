"""Keep a client's session at one replica, as long as that one is not too busy.

Sources: production-stack's `session` and vLLM Router's `consistent_hash` (a hash ring of session
keys). Theirs know no load; here a session whose replica has more than its share moves to the next
on the ring for that request, and comes back when there is room. The key is what the client gave as
such and nothing else: no header or field that is unique to each request.
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
    """The first replica clockwise of the session with room; without a session the least loaded."""

    sees_all: ClassVar[bool] = True  # a sample would move the sessions

    relative: float = 1.25
    absolute: float = 4.0  # requests

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
