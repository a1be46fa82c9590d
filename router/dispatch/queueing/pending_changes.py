"""Collects changes in the fleet until they are reported to the admission queue.

If no request waits, changes need not be reported at once: the next request updates the queue first.

Must never: grant a ticket, or depend on whether the time is real or simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.admission.pools import Pools
from router.core.replica_load import ReplicaLoad
from router.dispatch.queueing.places import Places
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet


class PendingChanges:
    """The changes in one router's fleet that its queues do not know yet."""

    def __init__(self, fleet: Fleet, places: Places, pools: Pools) -> None:
        self._fleet = fleet
        self._places = places
        self._pools = pools
        self._served: Mapping[ReplicaLoad, Iterable[str] | None] = {}
        self._changed: dict[Replica, None] = {}
        self._is_rebuilt = False
        self._is_awaited = False  # Whether a call of `read` was requested and has not happened yet.

    def note(self, replica: Replica | None) -> bool:
        """Note that a replica's state has changed.

        `replica`: `None` if the set of fit replicas, or the limits of replicas, changed. Returns
        True if the caller must call `read` at the end of this turn of the event loop.
        """
        if replica is None:
            self._is_rebuilt = True
        else:
            self._changed[replica] = None
            if not self._pools.waiting:
                # The next request updates the queue first, so no call of `read` must be requested.
                return False
        return self.await_reading()

    def await_reading(self) -> bool:
        """Request a call of `read` at the end of this turn of the event loop.

        Returns True if no call of `read` was requested before in this turn.
        """
        was_awaited, self._is_awaited = self._is_awaited, True
        return not was_awaited

    def read(self, now: float) -> dict[Replica, None]:
        """Update the queues' view of the fleet, if the fleet or the limits of replicas changed.

        Returns the changed replicas; the caller must call `Pools.freed` for each.
        """
        self._is_awaited = False
        changed, self._changed = self._changed, {}
        if not self._is_rebuilt:
            return changed
        self._is_rebuilt = False
        self._places.changed()
        served = self._places.served()
        if served != self._served:
            self._served = served
            self._pools.regroup(served, now)
        self._pools.rebuilt(now)
        return dict.fromkeys(self._fleet.replicas.values())

    def catch_up(self, now: float) -> None:
        """Update the queue before a new request, if no request waits."""
        if self._changed and not self._pools.waiting:
            for replica in self._changed:
                self._pools.freed(replica, now)  # No request waits, so nothing is granted.
            self._changed.clear()
