"""Implements the admission queue's view of the fleet: which replicas a ticket of a lane may use.

A lane is a model's name, `""` for requests that name no model, or `pinned(replica)` for requests
that only one replica can answer, such as those about a stored response.

Must never: wait, or filter replicas by load (the admission gate does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from policies.facts import RequestView
from router.admission.pool import Pool
from router.core.errors import RouterError
from router.core.replica_load import ReplicaLoad
from router.dispatch.chooser import Chooser
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.fleet.utilisation import slots_of

_PIN: Final = "\x00"  # Prefix of pinned lanes; no model's name begins with this character.
_LANES: Final = 1024  # Maximum number of cached lanes.


def pinned(replica: Replica) -> str:
    """Return the lane of requests that only this replica can answer."""
    return _PIN + replica.id


class Places(Pool):
    """Implements the `Pool` interface for a fleet table."""

    def __init__(self, fleet: Fleet, chooser: Chooser | None = None) -> None:
        """Create the view of a fleet.

        `chooser`: its routing policies may close a replica to priority classes; `None`: every
        replica is open to all classes.
        """
        self._fleet = fleet
        self._chooser = chooser
        # Lane -> the replicas that are fit for the lane, as a tuple and as a set. The fleet table
        # makes a new tuple when anything changes, so the tuple shows whether the set is current.
        self._sets: dict[str, tuple[Sequence[Replica], frozenset[ReplicaLoad]]] = {}

    def eligible(self, lane: str) -> Sequence[Replica]:
        if lane.startswith(_PIN):
            replica = self._fleet.ready_ids.get(lane[1:])
            return () if replica is None else (replica,)
        return self._fleet.serving(lane or None)

    def refusal(self, lane: str) -> RouterError | None:
        if not lane or lane.startswith(_PIN):
            return None
        return self._fleet.refusal(lane)

    def absent_since(self, lane: str) -> float:
        if lane.startswith(_PIN):
            return self._fleet.replica_absent_since(lane[1:])
        return self._fleet.absent_since(lane or None)

    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        if lane.startswith(_PIN):
            return self._fleet.ready_ids.get(lane[1:]) is place
        found = self._fleet.serving(lane or None)
        known = self._sets.get(lane)
        if known is None or known[0] is not found:
            if len(self._sets) >= _LANES:
                self._sets.clear()
            known = self._sets[lane] = (found, frozenset(found))
        return place in known[1]

    def closed_to(self, place: ReplicaLoad, leaving: int = -1) -> int:
        chooser = self._chooser
        if chooser is None:
            return 0
        found = chooser.closed_to(place, leaving)
        self.plan_changes = chooser.plan_changes
        return found

    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        return cast(Mapping[ReplicaLoad, int], self._fleet.knowledge.held(view))

    def slots(self, place: ReplicaLoad) -> float | None:
        assert isinstance(place, Replica)
        return slots_of(place)

    def guess(self, place: ReplicaLoad) -> float:
        assert isinstance(place, Replica)
        return place.learned.guess

    def is_blind(self, place: ReplicaLoad) -> bool:
        assert isinstance(place, Replica)
        signals = place.signals
        if signals.running is not None or signals.waiting is not None:
            return False
        return not place.polls_awaited

    def changed(self) -> None:
        """Drop the cached sets of replicas after a change of the fleet.

        Otherwise the set of a rarely named model could keep a removed replica in memory.
        """
        self._sets.clear()

    def served(self) -> Mapping[ReplicaLoad, Iterable[str] | None]:
        """Return the models that each replica serves, whether or not it is fit.

        `Pools.regroup` uses these models after each change of the fleet.
        """
        fleet = self._fleet
        return {replica: fleet.models_of(replica) for replica in fleet.replicas.values()}
