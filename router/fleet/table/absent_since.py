"""The time since which no fit replica could take a request, for each model, region and replica.

A request that finds no fit replica waits for one until this time is too long ago
(`classes.*.absent`). A request that is limited to some regions waits for these regions; their times
are recorded only for fleets of several regions.

Must never: decide how long a request waits, keep a name that the fleet does not know, or read a
clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from policies.allowed import Allowed
from router.fleet.model_pools import ModelPool
from router.fleet.table.serving import Serving
from router.wire.sweep import NEVER


class Absences:
    """Names without a fit replica, each with the time of the first rebuild without one."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, known: Collection[str], present: Collection[str], now: float) -> None:
        """Update the times of all names.

        `known`: the names that the fleet knows. `present`: the known names of which a replica is
        fit for requests.
        """
        since = self._since
        for name in known:
            if name not in present:
                since.setdefault(name, now)
        if since:
            for name in [n for n in since if n in present or n not in known]:
                del since[name]

    def since(self, name: str) -> float | None:
        """Return the time since which no replica of this name has been fit for requests.

        `None`: a replica of this name is fit, or the name is unknown.
        """
        return self._since.get(name)


class AbsentSince:
    """The absences of one fleet. Times are monotonic seconds."""

    __slots__ = ("_had_ready", "_models", "_regions", "_replicas", "_serving", "_since")

    def __init__(self, serving: Serving, now: float) -> None:
        self._serving = serving
        self._models = Absences()
        self._replicas = Absences()
        self._regions = Absences()  # By region and model; see `_pair`.
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
        if allowed is not None:
            lost = self._last(model or "", allowed) or self._last("", allowed)
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

    def _last(self, model: str, allowed: Allowed) -> float | None:
        """Return since when no allowed region has had a fit replica; `None`: unknown."""
        times = [self._regions.since(_pair(region, model)) for region in allowed.regions or ()]
        return max([time for time in times if time is not None], default=None)

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
        known: dict[str, None] = {}
        present: set[str] = set()
        for pool in pools if has_regions else ():
            fit = {replica.region for replica in pool.candidates}
            for region in {replica.region for replica in pool.members}:
                pairs = [_pair(region, model) for model in ("", *pool.names)]
                known.update(dict.fromkeys(pairs))
                if region in fit:
                    present.update(pairs)
        self._regions.update(known, present, now)


def _pair(region: str, model: str) -> str:
    return f"{region}\n{model}"
