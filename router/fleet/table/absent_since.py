"""The time since which no fit replica could take a request, for each model, region and replica.

A request that finds no fit replica waits for one until this time is too long ago
(`classes.*.absent`).

Must never: decide how long a request waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from policies.allowed import Allowed
from router.fleet.absences import Absences
from router.fleet.model_pools import ModelPool
from router.fleet.regions.region_absences import RegionAbsences
from router.fleet.table.serving import Serving
from router.wire.sweep import NEVER


class AbsentSince:
    """The absences of one fleet. Times are monotonic seconds."""

    __slots__ = (
        "_had_ready",
        "_has_regions",
        "_models",
        "_regions",
        "_replicas",
        "_serving",
        "_since",
    )

    def __init__(self, serving: Serving, now: float) -> None:
        self._serving = serving
        self._models = Absences()
        self._replicas = Absences()
        self._regions = RegionAbsences()
        self._has_regions = False
        self._had_ready = False  # Whether a replica was ready after the last change of the fleet.
        self._since = now  # Time since which no replica is ready.

    def of(self, model: str | None, allowed: Allowed | None) -> float:
        """Return the time since which no fit replica of the allowed regions serves a model.

        `model`: `None` means any model. `allowed`: `None` means all regions. Infinity: a fit
        replica serves the model.
        """
        if self._serving.of(model, allowed):
            return NEVER
        if allowed is not None and allowed.context:
            own = self._serving.resident(model, allowed).own
            times = [self.of_replica(replica.id) for replica in own]
            return max(times, default=self._since)
        if allowed is not None and self._has_regions:
            lost = self._regions.since(model, allowed)
            if lost is not None:
                return lost
        since = None if model is None else self._models.since(model)
        return self._since if since is None else since

    def of_replica(self, replica_id: str) -> float:
        """Return the time since which a replica has not been fit.

        Infinity: the replica is fit; minus infinity: the replica is unknown.
        """
        if replica_id in self._serving.ready_ids:
            return NEVER
        since = self._replicas.since(replica_id)
        return -NEVER if since is None else since

    def rebuild(
        self,
        models: Collection[str],
        replicas: Collection[str],
        pools: Iterable[ModelPool],
        has_regions: bool,
        now: float,
    ) -> None:
        """Update all times after a change of the fleet, when `Serving` has its new lists.

        `models`: the known names of models. `replicas`: the IDs of all replicas. `has_regions`:
        whether the fleet has several regions.
        """
        ready = self._serving.ready_ids
        if not ready and self._had_ready:
            self._since = now
        self._had_ready = len(ready) > 0
        self._models.update(models, self._serving.served_names(), now)
        self._replicas.update(replicas, ready, now)
        self._has_regions = has_regions
        self._regions.update(pools if has_regions else (), now)
