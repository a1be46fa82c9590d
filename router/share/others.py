"""What the other routers have told: the sums of their loads, and their placements.

There is one record of each router (`heard.py`). A router of which nothing was heard for `LOST_S`
seconds counts as gone: its load is subtracted, and what waits there is forgotten. The record stays
for a while, because what the router has granted stays granted (`limits_told.py`).

A row replaces the last one of the same router and replica, so the sums change by the difference.

Must never: wait, believe a message of another life of this router, or change the leases' counts.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from router.core.lease import others_counted
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.share.heard import Router
from router.share.limits_told import SharedLimits
from router.share.messages import LOST_S, MOST_ROUTERS, Message, Row
from router.share.order import OthersOrder

AT_ONCE: Final = 4  # routers that use a slot of another one as soon as it is told to be free
# Seconds that a silent router is remembered while the channel works: after the amount of one minute
# nothing is owed.
KEPT_S: Final = 60.0
_NO_ROW: Final = Row("", 0, 0, 0)
_NO_LOAD: Final = (0, 0, 0)


class Others:
    """The routers beside this one."""

    def __init__(
        self,
        router: str,
        fleet: Fleet,
        limits: SharedLimits,
        order: OthersOrder | None = None,
    ) -> None:
        """`router`: the own name. `limits`: those of its tenants. `order`: None if requests do not
        wait at this router."""
        self._order = order
        self._router = router
        self._limits = limits
        self._fleet = fleet
        self._routers: dict[str, Router] = {}
        self.count = 0  # The routers that were heard lately.
        # By replica, over all routers, without zeros: load, waiting requests, their tokens.
        self._sums: dict[str, tuple[int, int, int]] = {}
        self._offset = crc32(router.encode())

    def hear(self, message: Message, now: float) -> bool:
        """Take over what a router has told; return whether the router was unknown or silent.

        A message that a later one has passed is ignored, except for its placements.
        """
        self._limits.channel_works(now)
        if message.router == self._router:
            return False
        router = self._routers.get(message.router)
        if router is None:
            if len(self._routers) >= MOST_ROUTERS and not self._forget_one():
                return False
            router = self._routers[message.router] = Router(message.number, now)
        is_new = not router.is_heard
        if is_new:
            router.is_heard = True
            self.count += 1
        router.heard_at = now
        if message.number > router.number:
            router.number = message.number
            self._limits.hear(message.uses, router, now)
            # First the order, because a changed load may cause a choice by it.
            if self._order is not None:
                self._order.hear(message, router, now)
            self._hear_rows(message, router)
        fleet = self._fleet
        for placement in message.placements:
            replica = fleet.replicas.get(placement.replica)
            if replica is not None:
                fleet.knowledge.begun(replica, placement.blocks, placement.held)
        return is_new

    def _hear_rows(self, message: Message, router: Router) -> None:
        """Count the rows of a message, and report the replicas with less load to the queue."""
        # Rows of replicas that this router does not have are left out, so that memory is bounded.
        # The next whole message has them again.
        known = self._fleet.replicas
        rows = {row.replica: row for row in message.rows if row.replica in known}
        freed = self._count(router, rows, is_whole=message.is_whole)
        # If many routers used a free slot at once, most of their requests would wait there. The
        # other routers use it at the next tick of the queue.
        groups = max(1, self.count // AT_ONCE)
        if (message.number + self._offset) % groups == 0:
            for replica in freed:
                self._fleet.hooks.room(replica)

    def _count(self, router: Router, rows: dict[str, Row], *, is_whole: bool) -> list[Replica]:
        """Count rows in place of the last ones of their router. Return the replicas with less load
        than before. `is_whole`: the router has no load at the other replicas."""
        last, sums, replicas = router.rows, self._sums, self._fleet.replicas
        freed: list[Replica] = []
        for name in {**last, **rows} if is_whole else rows:
            row, before = rows.get(name, _NO_ROW), last.get(name, _NO_ROW)
            load, waiting, tokens = sums.get(name, _NO_LOAD)
            load += row.load - before.load
            waiting += row.waiting - before.waiting
            tokens += row.tokens - before.tokens
            if load or tokens:
                sums[name] = load, waiting, tokens
            else:
                sums.pop(name, None)
            last[name] = row
            replica = replicas.get(name)
            if replica is not None:
                is_more = load > replica.shared_load or waiting > replica.shared_waiting
                if load < replica.shared_load or waiting < replica.shared_waiting:
                    freed.append(replica)
                others_counted(replica, waiting, load, tokens)
                if is_more:
                    self._fleet.hooks.taken(replica)
        if is_whole:
            router.rows = rows
        return freed

    def expire(self, now: float) -> None:
        """Forget the load and the queues of the routers that are silent."""
        lost: list[Router] = []
        freed: dict[Replica, None] = {}  # Each once: if the server is lost, all routers are.
        for name, router in list(self._routers.items()):
            if router.is_heard and now - router.heard_at > LOST_S:
                router.is_heard = False
                self.count -= 1
                lost.append(router)
                freed.update(dict.fromkeys(self._count(router, {}, is_whole=True)))
            if self._limits.channel_at - router.heard_at > KEPT_S:
                del self._routers[name]
        if self._order is not None and lost:
            self._order.lost(lost)
        self._limits.expire(lost, self._routers.values(), now)
        for replica in freed:
            self._fleet.hooks.room(replica)

    def _forget_one(self) -> bool:
        """Forget one silent router; return whether there was one."""
        for name, router in self._routers.items():
            if not router.is_heard:
                del self._routers[name]
                return True
        return False
