"""What the other routers have told: the sums of their loads, and their placements.

A router of which nothing was heard for `LOST_S` seconds counts as gone: its load is subtracted.

Must never: wait, believe a message of another life of this router, or change the leases' counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from router.core.lease import others_counted
from router.fleet.table.fleet import Fleet
from router.share.limits_told import SharedLimits
from router.share.messages import LOST_S, MOST_ROUTERS, Message, Row
from router.share.order import OthersOrder

AT_ONCE: Final = 4  # routers that use a slot of another one as soon as it is told to be free


class _Router:
    """The last rows of one router."""

    __slots__ = ("heard_at", "number", "rows")

    def __init__(self) -> None:
        self.number = -1
        self.heard_at = 0.0
        self.rows: dict[str, Row] = {}


class Others:
    """The routers beside this one."""

    def __init__(
        self,
        router: str,
        fleet: Fleet,
        limits: SharedLimits | None = None,
        order: OthersOrder | None = None,
    ) -> None:
        """`router`: the own name. `limits`: those of its tenants, if they are shared. `order`: None
        if requests do not wait at this router."""
        self._order = order
        self._router = router
        self._limits = limits
        self._fleet = fleet
        self._routers: dict[str, _Router] = {}
        self._offset = crc32(router.encode())

    @property
    def count(self) -> int:
        """The number of routers that were heard lately."""
        return len(self._routers)

    def hear(self, message: Message, now: float) -> bool:
        """Take over what a router has told; return whether the router was unknown.

        A message that a later one has passed is ignored.
        """
        if self._limits is not None:
            self._limits.hear(message, now)
        if message.router == self._router:
            return False
        router = self._routers.get(message.router)
        is_new = router is None
        if router is None:
            if len(self._routers) >= MOST_ROUTERS:
                return False
            router = self._routers[message.router] = _Router()
        router.heard_at = now
        if message.number > router.number:
            router.number = message.number
            # First the order, because a changed load may cause a choice by it.
            if self._order is not None:
                self._order.hear(message, now)
            # Rows of replicas that this router does not have are left out, so that memory is
            # bounded. The next whole message has them again.
            known = self._fleet.replicas
            # If many routers used a free slot at once, most of their requests would wait there.
            groups = max(1, len(self._routers) // AT_ONCE)
            acts = (message.number + self._offset) % groups == 0
            changed = {row.replica: row for row in message.rows if row.replica in known}
            if message.is_whole:
                before, router.rows = router.rows, changed
                self._count({**before, **changed}, acts=acts)
            else:
                router.rows |= changed
                self._count(changed, acts=acts)
        fleet = self._fleet
        for placement in message.placements:
            replica = fleet.replicas.get(placement.replica)
            if replica is not None:
                fleet.knowledge.begun(replica, placement.blocks, placement.held)
        return is_new

    def expire(self, now: float) -> None:
        """Forget the routers that are silent."""
        if self._limits is not None:
            self._limits.expire(now)
        lost = [name for name, one in self._routers.items() if now - one.heard_at > LOST_S]
        if self._order is not None and lost:
            self._order.lost(lost)
        # One count for all: if the server is lost, all routers are.
        self._count({row for name in lost for row in self._routers.pop(name).rows})

    def _count(self, names: Iterable[str], *, acts: bool = True) -> None:
        """Compute the sums of these replicas again. `acts`: a free slot is used at once; otherwise
        at the next tick of the queue."""
        replicas = self._fleet.replicas
        for name in names:
            replica = replicas.get(name)
            if replica is None:
                continue
            load = waiting = tokens = 0
            for router in self._routers.values():
                row = router.rows.get(name)
                if row is not None:
                    load += row.load
                    waiting += row.waiting
                    tokens += row.tokens
            is_less = load < replica.shared_load or waiting < replica.shared_waiting
            is_more = load > replica.shared_load or waiting > replica.shared_waiting
            others_counted(replica, waiting, load, tokens)
            if is_less and acts:
                self._fleet.hooks.room(replica)
            elif is_more:
                self._fleet.hooks.taken(replica)
