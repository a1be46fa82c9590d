"""The changes in the fleet that the admission queue has not been told of yet.

Where no request waits nothing has to be told at once: the next request lets the queue catch up
first.

Must never: grant anything, or know how its driver lets time pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.admission.pools import Pools
from router.core.replica_load import ReplicaLoad
from router.dispatch.places import Places
from router.fleet.replica import Replica
from router.fleet.table import Fleet


class PendingChanges:
    """The changed replicas of one router's fleet, for its queues."""

    def __init__(self, fleet: Fleet, places: Places, pools: Pools) -> None:
        self._fleet = fleet
        self._places = places
        self._pools = pools
        self._served: Mapping[ReplicaLoad, Iterable[str] | None] = {}
        self._changed: dict[Replica, None] = {}
        self._is_rebuilt = False
        self._is_awaited = False  # somebody has been asked to read them, and has not yet

    def note(self, replica: Replica | None) -> bool:
        """A replica's facts are others now; None: who is fit, or what they may have, is.

        True: `read` them at the end of this turn; nobody was asked to before.
        """
        if replica is None:
            self._is_rebuilt = True
        else:
            self._changed[replica] = None
            if not self._pools.waiting:
                return False  # whoever comes next looks first, and the turn is spared
        return self.await_reading()

    def await_reading(self) -> bool:
        """Ask for a reading at the end of this turn. True: this is the first call of the turn."""
        was_awaited, self._is_awaited = self._is_awaited, True
        return not was_awaited

    def read(self, now: float) -> dict[Replica, None]:
        """Those the queue is to be told of (`freed`), now; it has the pools of today."""
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
        """Somebody comes: where nobody waits, the queue has not heard of what changed."""
        if self._changed and not self._pools.waiting:
            for replica in self._changed:
                self._pools.freed(replica, now)  # nobody is there to be granted it
            self._changed.clear()
