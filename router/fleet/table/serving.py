"""The fit replicas for each model, in lists that are prepared for requests.

For each model, there are the preferred replicas among the fit ones, and the others. A suspect or
busy replica gets no request while another replica of the model is neither suspect nor busy. Each
change of the fleet makes new lists, so a request only reads them.

A request may be limited to some regions and context lengths (`RequestView.allowed`). Every method
that returns replicas for a request has the argument `allowed` without a default, so no caller can
forget it. The lists for limited requests are made when they are first needed
(`regions/residents.py`).

Must never: return a replica that is not fit, or filter replicas by their load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from policies.allowed import Allowed
from router.core.replica_load import UNLIMITED
from router.fleet.model_pools import ModelPools
from router.fleet.names import Target
from router.fleet.regions.residents import Residents, preferred_of, without
from router.fleet.replica import Replica
from router.fleet.table.models import FleetModels


class Serving:
    """The fit replicas of one fleet, by model."""

    __slots__ = (
        "_any_model",
        "_by_model",
        "_clock",
        "_models",
        "_passed_over",
        "_replicas",
        "_residents",
        "has_limits",
        "is_one_pool",
        "ready",
        "ready_ids",
    )

    def __init__(
        self, replicas: dict[str, Replica], models: FleetModels, clock: Callable[[], float]
    ) -> None:
        """`replicas`: the fleet's own dict, which changes over time. `clock`: monotonic seconds."""
        self._replicas = replicas
        self._models = models
        self._clock = clock
        # The replicas that may get requests; a tuple, because policies get this object itself.
        self.ready: tuple[Replica, ...] = ()
        self.ready_ids: dict[str, Replica] = {}
        self._by_model: dict[str, tuple[Replica, ...]] = {}
        # Ready replicas, if no replica of the fleet lists its models.
        self._any_model: tuple[Replica, ...] = ()
        # For each model, the replicas that are fit but not preferred. A request uses them after it
        # tried all preferred replicas. Key None: the whole fleet.
        self._passed_over: dict[str | None, tuple[Replica, ...]] = {}
        # The lists of replicas for requests that are limited to some regions, by model and regions.
        self._residents: dict[tuple[str | None, str], Residents] = {}
        self.is_one_pool = True  # Whether all replicas serve the same models.
        self.has_limits = False  # Whether any replica has a limit of requests.

    # -- requests -----------------------------------------------------------------------------

    def of(self, model: str | None, allowed: Allowed | None) -> tuple[Replica, ...]:
        """Return the fit replicas for a model in the allowed regions (`None`: all regions),
        including those that have reached their limit of requests. The tuple stays the same object
        until the fleet changes."""
        if allowed is not None:
            return self.resident(model, allowed).preferred
        return self.everywhere(model)

    def everywhere(self, model: str | None) -> tuple[Replica, ...]:
        """Return the fit replicas for a model in all regions."""
        if model is None:
            return self.ready
        found = self._by_model.get(model)
        if found:
            return found
        return () if model in self._models.names.pooled else self._any_model

    def passed_over(self, model: str | None, allowed: Allowed | None) -> tuple[Replica, ...]:
        """Return the fit replicas for a model that are not preferred."""
        if allowed is not None:
            return self.resident(model, allowed).others
        return self._passed_over.get(model, ())

    def fits(self, replica: Replica, model: str | None, allowed: Allowed) -> bool:
        """Whether a replica is in the allowed regions, and its context may be long enough."""
        if not allowed.allows(replica.region):
            return False
        needed = allowed.context
        return not needed or replica.listed.lengths.fits(self._models.own_name(model), needed)

    def resident(self, model: str | None, allowed: Allowed) -> Residents:
        """Return the replicas for a model in the allowed regions."""
        if model is not None and model not in self._by_model:
            model = ""  # Clients may invent names of models, so these names share one entry.
        key = (model, allowed.lane)
        found = self._residents.get(key)
        if found is None:
            models = self._models
            fit: list[Replica] = [*self.everywhere(model)]
            fit += self._passed_over.get(model, ())
            found = self._residents[key] = Residents(
                fit, models.replicas_of(model), allowed, models.own_name(model), self._clock()
            )
        return found

    def served_names(self) -> Collection[str]:
        """Return the known names of models of which a replica is fit."""
        if self._any_model:
            return self._models.known
        return {name for name, found in self._by_model.items() if found}

    # -- changes of the fleet -----------------------------------------------------------------

    def rebuild(self, pools: ModelPools, now: float) -> None:
        """Make all lists again, and set `Replica.is_fit`. `pools`: after `ModelPool.judge`."""
        self._by_model = {}
        self._passed_over = {}
        self._residents = {}
        candidates: set[Replica] = set()
        for pool in pools.all:
            candidates.update(pool.candidates)
            self._list(pool.names, pool.candidates, now)
        self._any_model = tuple(preferred_of(pools.any.candidates, now))
        for name, target in self._models.names.pooled.items():
            self._gather(name, target, now)
        everyone = self._replicas.values()
        ready = [r for r in everyone if r in candidates]
        self.ready_ids = {r.id: r for r in ready}
        for replica in everyone:
            replica.is_fit = replica in candidates
        self.ready = tuple(preferred_of(ready, now))
        if len(self.ready) < len(ready):
            self._passed_over[None] = without(ready, self.ready)
        self.has_limits = any(r.limit != UNLIMITED for r in everyone)
        self.is_one_pool = len(pools.all) - bool(pools.any.members) <= 1

    def _gather(self, name: str, target: Target, now: float) -> None:
        """List the replicas of a target's pool under the name `model@pool`."""
        models = self._models
        pool = models.pools.names.get(models.listed_name(target.model), models.pools.any)
        self._list([name], [r for r in pool.candidates if r.config.pool == target.pool], now)

    def _list(self, names: Sequence[str], found: Sequence[Replica], now: float) -> None:
        """List these fit replicas under each of the names."""
        preferred = tuple(preferred_of(found, now))
        others = without(found, preferred) if len(preferred) < len(found) else ()
        for name in names:
            self._by_model[name] = preferred
            if others:
                self._passed_over[name] = others
