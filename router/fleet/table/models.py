"""The models of a fleet: which replica serves which model, and the names that stand for a model.

A replica that lists no models serves any model, but only if no replica of the fleet lists its own
models. A target of a configured name may be limited to a pool; it has the name `model@pool`
(`fleet/names.py`), and only replicas of this pool serve it.

Must never: look at the health of a replica, except to see whether it has answered yet.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from router.fleet.aliases import Aliases
from router.fleet.model_pools import ModelPools
from router.fleet.names import NO_NAMES, Target
from router.fleet.replica import Replica

# Maximum number of model names that are remembered while their replicas are down.
_KNOWN_MAX: Final = 10_000


class FleetModels:
    """The models of one fleet. The lists are replaced when the fleet changes."""

    __slots__ = (
        "_replicas",
        "aliases",
        "awaits_probe",
        "known",
        "lists_models",
        "names",
        "pools",
        "unread_until",
    )

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes over time."""
        self._replicas = replicas
        # The served models that stand for model names that no replica lists.
        self.aliases = Aliases(replicas)
        self.names = NO_NAMES  # What the names that clients write stand for.
        self.pools = ModelPools()
        # All models that a replica lists, whether or not it is up.
        self.known: dict[str, None] = {}
        self.lists_models = False  # Whether any replica of the fleet lists its models.
        self.awaits_probe = False  # Whether any replica of the fleet waits for its first probe.
        # Until this time, a replica that is not up yet may serve a model that no replica lists.
        self.unread_until = -inf

    # -- names --------------------------------------------------------------------------------

    def routed(self, model: str | None) -> str | None:
        """Return the model by which a request is queued and routed: the named model, or the model
        that stands for a name that no replica lists."""
        listed = self.pools.names
        if model is None or model in listed:
            return model
        pooled = self.names.pooled
        if model in pooled or not (listed or pooled):
            return model
        return self.aliases.of(model)

    def routed_target(self, target: Target) -> str | None:
        """Return the model by which a request for a target is queued and routed.

        No other model stands for a target with a pool, because only the pool may serve it.
        """
        return target.routed if target.pool else self.routed(target.routed)

    def listed_name(self, model: str) -> str:
        """Return a model's name if a replica lists it, else the model that stands for it."""
        return model if model in self.pools.names else self.aliases.of(model)

    def own_name(self, model: str | None) -> str | None:
        """Return the name of a model in the lists of replicas."""
        target = None if model is None else self.names.pooled.get(model)
        return model if target is None else self.listed_name(target.model)

    # -- replicas -----------------------------------------------------------------------------

    def may_serve(self, replica: Replica, model: str | None) -> bool:
        """Whether a replica serves a model, or may serve it because its models are not known yet.

        The replica need not be fit. `model`: `None` means any model.
        """
        models = replica.models
        target = None if model is None else self.names.pooled.get(model)
        if target is not None:
            if target.pool != replica.config.pool:
                return False
            model = self.listed_name(target.model)
        if models is None:
            return not replica.standing.is_unlisted
        return model is None or model in models

    def replicas_of(self, model: str | None) -> list[Replica]:
        """Return all replicas that serve a model or may serve it, whether or not they are fit."""
        return [r for r in self._replicas.values() if self.may_serve(r, model)]

    def lengths_of(self, model: str | None) -> list[int]:
        """Return the context length of each replica that serves a model or may serve it."""
        name = self.own_name(model)
        return [r.listed.lengths.of(name) for r in self.replicas_of(model)]

    def of(self, replica: Replica) -> frozenset[str] | None:
        """Return the models that a replica serves, whether or not it is fit; `None` means any
        model."""
        models = replica.models
        if models is None:
            return frozenset() if self.lists_models else None
        if not self.names.pooled:
            return models
        return models | {name for name in self.names.pooled if self.may_serve(replica, name)}

    # -- changes of the fleet -----------------------------------------------------------------

    def rebuild(self, on_event: Callable[[str, Replica], None]) -> ModelPools:
        """Group the replicas into pools again, after a change of the fleet.

        `on_event`: called for each replica whose models are unknown from now on, although other
        replicas list their models.
        """
        self._find_unlisted(on_event)
        # If other replicas list models, a replica that lists none is in no pool and gets no
        # request.
        lists = self.lists_models
        members = [r for r in self._replicas.values() if not lists or r.models is not None]
        self.pools = ModelPools(members)
        return self.pools

    def _find_unlisted(self, on_event: Callable[[str, Replica], None]) -> None:
        self.awaits_probe = False
        self.lists_models = any(r.models is not None for r in self._replicas.values())
        for replica in self._replicas.values():
            health = replica.health
            if health.is_new:
                self.awaits_probe = True
            is_unlisted = self.lists_models and replica.models is None and health.up
            if replica.standing.unlisted(is_unlisted):
                on_event("lists no models", replica)

    def remember(self, awaits_list: bool) -> None:
        """Remember all models that a replica lists, whether or not it is up.

        The names of targets with a pool are remembered as long as they are configured. A model
        that no replica lists any more is forgotten. `awaits_list`: a replica that is down
        or asleep has not listed its models yet; then no model is forgotten.
        """
        listed, known = self.pools.names, self.known
        for name in listed:
            if len(known) >= _KNOWN_MAX:
                break
            known[name] = None
        if len(known) > len(listed) and not awaits_list:
            for name in [name for name in known if name not in listed]:
                del known[name]
        for name in self.names.pooled:
            known[name] = None
