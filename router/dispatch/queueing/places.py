"""Implements the admission queue's view of the fleet: which replicas a ticket of a lane may use.

A lane is a model's name, `""` for requests that name no model, or `pinned(replica)` for requests
that only one replica can answer, such as those about a stored response. Requests that are limited
to some regions have lanes of their own (`policies/allowed.py`), so they delay no other request
while they wait for their regions.

Must never: wait, or filter replicas by load (the admission gate does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from policies.allowed import Allowed, read_lane
from policies.facts import RequestView
from router.admission.pool import Pool
from router.core.errors import RouterError
from router.core.replica_load import ReplicaLoad
from router.dispatch.chooser import Chooser
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.utilisation import slots_of

_PIN: Final = "\x00"  # Prefix of pinned lanes; no model's name begins with this character.
_LANES: Final = 1024  # Maximum number of cached lanes.


def pinned(replica: Replica) -> str:
    """Return the lane of requests that only this replica can answer."""
    return _PIN + replica.id


class LaneSet:
    """The replicas that are fit for a lane, as a tuple and as a set.

    `replicas` is a tuple of the fleet table. The table makes a new tuple when anything changes, so
    the tuple shows whether the set is current.
    """

    __slots__ = ("allowed", "as_set", "model", "pin", "replicas")

    def __init__(self, lane: str) -> None:
        model, allowed = read_lane(lane)
        # The ID of the only replica that can answer; `None`: the lane is that of a model.
        self.pin: str | None = model[1:] if model.startswith(_PIN) else None
        self.model: str | None = model or None
        self.allowed: Allowed | None = allowed
        self.replicas: Sequence[Replica] = ()
        self.as_set: frozenset[ReplicaLoad] = frozenset()


class Places(Pool):
    """Implements the `Pool` interface for a fleet table."""

    def __init__(self, fleet: Fleet, chooser: Chooser | None = None) -> None:
        """Create the view of a fleet.

        `chooser`: its routing policies may close a replica to priority classes; `None`: every
        replica is open to all classes.
        """
        self._fleet = fleet
        self._chooser = chooser
        self._sets: dict[str, LaneSet] = {}  # Lane -> its replicas.

    def _set(self, lane: str) -> LaneSet:
        known = self._sets.get(lane)
        if known is None:
            if len(self._sets) >= _LANES:
                self._sets.clear()
            known = self._sets[lane] = LaneSet(lane)
        return known

    def eligible(self, lane: str) -> Sequence[Replica]:
        known = self._set(lane)
        if known.pin is not None:
            replica = self._fleet.eligibility.pinned(known.pin, known.allowed)
            return () if replica is None else (replica,)
        return self._fleet.serving.of(known.model, known.allowed)

    def refusal(self, lane: str) -> RouterError | None:
        known = self._set(lane)
        if known.pin is not None:
            return self._fleet.eligibility.refusal_of_pinned(known.pin, known.allowed)
        return self._fleet.eligibility.refusal(known.model, known.allowed)

    def absent_since(self, lane: str) -> float:
        known = self._set(lane)
        if known.pin is not None:
            return self._fleet.absent_since.of_replica(known.pin)
        return self._fleet.absent_since.of(known.model, known.allowed)

    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        known = self._set(lane)
        if known.pin is not None:
            return self._fleet.eligibility.pinned(known.pin, known.allowed) is place
        found = self._fleet.serving.of(known.model, known.allowed)
        if known.replicas is not found:
            known.replicas = found
            known.as_set = frozenset(found)
        return place in known.as_set

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
        return place.learned.capacity.guess

    def is_blind(self, place: ReplicaLoad) -> bool:
        assert isinstance(place, Replica)
        signals = place.reports.signals
        if signals.running is not None or signals.waiting is not None:
            return False
        return not place.reports.polls_awaited

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
        return {replica: fleet.models.of(replica) for replica in fleet.replicas.values()}
