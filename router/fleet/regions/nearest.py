"""Narrows the candidates of a request to the nearest region that is not full.

The order is that of SageServe's global router (arXiv 2502.14617): the nearest region is used until
its utilisation reaches `regions.spill_at`, then the next nearest region is used. If all regions are
full, the least utilised region is used. The routing policy then chooses a replica of that region.

If the router has a zone, the replicas of that zone are a group of their own, which is the nearest
group.

If the queue's gates close all replicas of a region, the region has no candidate and is skipped at
any utilisation. So a request does not wait while another region can serve it.

This module does not check the regions that a request may use (`RequestView.allowed`), because all
candidates are in allowed regions already. In a fleet with one group, a request costs one test.

A region becomes full when its utilisation reaches `spill_at`, and remains full until the
utilisation is below `return_at`. If both limits were equal, a region at the limit would change
between full and not full with each request.

Must never: treat an unknown utilisation as full, return a replica that is not in `candidates`, or
return an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from policies.facts import RequestView
from router.config.model import Config, Regions
from router.fleet.regions.distances import Distances
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


_MEASURE_S: Final = 5.0  # Seconds between two readings of the measured distances.
_MODELS: Final = 1024  # Maximum number of models whose groups are cached.
_SPLITS: Final = 64  # Maximum number of cached candidate lists.

Groups = dict[str, tuple[Replica, ...]]


class ModelRegions:
    """The groups of the replicas that serve one model."""

    __slots__ = ("loads", "served")

    def __init__(self) -> None:
        self.served: Sequence[Replica] = ()
        self.loads: dict[str, RegionLoad] = {}

    def serve(self, served: Sequence[Replica]) -> None:
        """Store the replicas that serve the model now. Groups that remain keep their state."""
        self.served = served
        before, self.loads = self.loads, {}
        for name, members in split(served).items():
            load = self.loads[name] = before.get(name) or RegionLoad()
            load.serve(members)

    def release(self) -> None:
        """Drop the replicas, because some of them have left the fleet. The groups keep their state.

        `serve` must be called next, when a request for the model arrives.
        """
        self.served = ()
        for load in self.loads.values():
            load.serve(())


class Nearest:
    """The regions of one fleet. Times are monotonic seconds."""

    __slots__ = (
        "_distances",
        "_due",
        "_models",
        "_orders",
        "_regions",
        "_replicas",
        "_return_at",
        "_serving",
        "_spill_at",
        "_splits",
        "_zone",
        "choices",
        "is_used",
    )

    def __init__(self, serving: Callable[[str | None], Sequence[Replica]]) -> None:
        """`serving`: returns the fit replicas for a model, as the same object until they change."""
        self.is_used = False  # Whether the fleet has more than one group.
        # Number of choices by the preferred region and the chosen group.
        self.choices: dict[tuple[str, str], int] = {}
        self._serving = serving
        self._distances = Distances()
        self._zone = ""
        rules = Regions()
        self._spill_at, self._return_at = rules.spill_at, rules.return_at
        self._replicas: Sequence[Replica] = ()
        self._regions: frozenset[str] = frozenset()
        self._due = -inf
        self._models: dict[str | None, ModelRegions] = {}
        self._orders: dict[str, tuple[str, ...]] = {}  # Groups by distance from a region.
        self._splits: dict[int, tuple[Sequence[Replica], Groups]] = {}

    def adopt(self, config: Config) -> None:
        """Apply a configuration. The caller must call `Fleet.rebuild` next."""
        rules = config.regions
        self._distances.adopt(config.region, {(d.start, d.end): d.rtt_s for d in rules.distances})
        self._zone = config.zone
        self._spill_at, self._return_at = rules.spill_at, rules.return_at

    @property
    def own(self) -> str:
        """The region of the router."""
        return self._distances.own

    @property
    def regions(self) -> frozenset[str]:
        """The regions of the fleet's replicas."""
        return self._regions

    def rebuilt(self, replicas: Sequence[Replica]) -> None:
        """Store all replicas of the fleet after a change, including replicas that are not fit."""
        if any(replica.removed for replica in self._replicas):
            for regions in self._models.values():
                regions.release()
        self._replicas = replicas
        own, zone = self._distances.own, self._zone
        for replica in replicas:
            is_near = zone != "" and replica.region == own and replica.config.zone == zone
            replica.group = f"{own}/{zone}" if is_near else replica.region
        self._regions = frozenset([replica.region for replica in replicas])
        self.is_used = len({replica.group for replica in replicas}) > 1
        self._orders.clear()
        self._splits.clear()

    def preferred(self, view: RequestView) -> str:
        """Return the region that a request prefers: the client's region, or else the router's."""
        return view.region or self._distances.own

    def narrow(
        self, view: RequestView, candidates: Sequence[Replica], now: float
    ) -> Sequence[Replica]:
        """Return the candidates that are in the nearest region that is not full.

        Call it only while `is_used` is true.
        """
        if now >= self._due:
            self._measure(now)
        groups = self._split(candidates)
        preferred = self.preferred(view)
        loads = self._loads(view.model)
        found: str | None = None
        least = inf
        for name in self._order(preferred):
            if name not in groups:
                continue
            load = loads.get(name)
            if load is None:  # All preferred replicas were tried.
                found = name
                break
            load.look(self._spill_at, self._return_at, now)
            if not load.is_full:
                found = name
                break
            if load.used < least:
                least = load.used
                found = name
        if found is None:  # All candidates have left the fleet.
            return candidates
        self.choices[preferred, found] = self.choices.get((preferred, found), 0) + 1
        return groups[found]

    def order(self, preferred: str) -> tuple[str, ...]:
        """Return the groups of the fleet by their distance from a region, the nearest first."""
        return self._order(preferred or self._distances.own)

    def utilisations(self, model: str, now: float) -> dict[str, float]:
        """Return the utilisation of each group for a model, if it is known."""
        loads = self._loads(model)
        for load in loads.values():
            load.look(self._spill_at, self._return_at, now)
        return {name: load.used for name, load in loads.items() if load.used >= 0.0}

    def _loads(self, model: str | None) -> dict[str, RegionLoad]:
        regions = self._models.get(model)
        if regions is None:
            if len(self._models) >= _MODELS:  # Clients may invent names of models.
                self._models.clear()
            regions = self._models[model] = ModelRegions()
        served = self._serving(model)
        if regions.served is not served:
            regions.serve(served)
        return regions.loads

    def _split(self, candidates: Sequence[Replica]) -> Groups:
        """Return the candidates by group. The result for a tuple is cached."""
        if type(candidates) is not tuple:
            return split(candidates)
        known = self._splits.get(id(candidates))
        if known is not None and known[0] is candidates:
            return known[1]
        if len(self._splits) >= _SPLITS:
            self._splits.clear()
        groups = split(candidates)
        self._splits[id(candidates)] = (candidates, groups)
        return groups

    def _order(self, preferred: str) -> tuple[str, ...]:
        known = self._orders.get(preferred)
        if known is None:
            start = preferred
            if start not in self._regions and not self._distances.knows(start):
                start = self._distances.own  # The region of the client is unknown.
            groups = {replica.group: replica.region for replica in self._replicas}
            keys = [
                (self._distances.between(start, region), region, name == region, name)
                for name, region in groups.items()
            ]
            known = self._orders[preferred] = tuple([key[3] for key in sorted(keys)])
        return known

    def _measure(self, now: float) -> None:
        """Read the measured distance of each region: the distance of its nearest replica."""
        self._due = now + _MEASURE_S
        nearest: dict[str, float] = {}
        for replica in self._replicas:
            rtt_s = replica.speed.rtt_s
            if rtt_s > 0.0:
                nearest[replica.region] = min(rtt_s, nearest.get(replica.region, inf))
        if self._distances.measured(nearest):
            self._orders.clear()


def split(replicas: Sequence[Replica]) -> Groups:
    """Return replicas by group, in their order."""
    found: dict[str, list[Replica]] = {}
    for replica in replicas:
        members = found.get(replica.group)
        if members is None:
            found[replica.group] = [replica]
        else:
            members.append(replica)
    return {name: tuple(members) for name, members in found.items()}
