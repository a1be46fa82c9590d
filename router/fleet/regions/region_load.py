"""The utilisation of the replicas of one region that serve one model, with hysteresis.

A region becomes full when its utilisation reaches `spill_at`, and remains full until the
utilisation is below `return_at`. If both limits were equal, a region at the limit would change
between full and not full with each request.

Must never: change a replica, or treat an unknown utilisation as full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.fleet.replica import Replica
from router.fleet.utilisation import kv_occupancy, utilisation

# The utilisation of larger regions is not computed for each request, but once in `_FRESH_S` seconds
# for each `_MANY` replicas.
_MANY: Final = 64
_FRESH_S: Final = 0.01


class RegionLoad:
    """The replicas of one region for one model. `used`: the utilisation; below 0: unknown."""

    __slots__ = ("_due", "is_full", "members", "used")

    def __init__(self) -> None:
        self.members: Sequence[Replica] = ()
        self.used = -1.0
        self.is_full = False
        self._due = 0.0  # The time when the utilisation must be computed again.

    def serve(self, members: Sequence[Replica]) -> None:
        """Store the replicas that serve the model now. The region remains full if it was full."""
        self.members = members
        self._due = 0.0

    def look(self, spill_at: float, return_at: float, now: float) -> None:
        """Update the utilisation.

        The utilisation is the share of the slots or of the KV caches in use, whichever is higher.
        """
        if now < self._due:
            return
        self._due = now + _FRESH_S * (len(self.members) // _MANY)
        slots, kv = utilisation(self.members), kv_occupancy(self.members)
        used = -1.0 if slots is None else slots
        if kv is not None and kv > used:
            used = kv
        self.used = used
        self.is_full = used >= (return_at if self.is_full else spill_at)
