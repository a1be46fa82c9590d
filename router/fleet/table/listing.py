"""The models that clients see: the answer to /v1/models, and the names in error messages.

An answer is made at the next request for it, after the models have changed.

Must never: list a model of a region that the client may not use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from policies.allowed import Allowed
from router.fleet.listed import ANY, served_text
from router.fleet.model_list import ModelList
from router.fleet.replica import Replica
from router.fleet.table.models import FleetModels
from router.fleet.table.serving import Serving

_LISTS_MAX: Final = 16  # Maximum number of cached answers to /v1/models.


class Listing:
    """The lists of the models of one fleet."""

    __slots__ = ("_lists", "_made_from", "_models", "_replicas", "_serving")

    def __init__(self, replicas: dict[str, Replica], models: FleetModels, serving: Serving) -> None:
        """`replicas`: the fleet's own dict, which changes over time."""
        self._replicas = replicas
        self._models = models
        self._serving = serving
        self._lists: dict[str, ModelList] = {}  # By the allowed regions; "": all regions.
        # The replicas, models and regions from which the lists were made.
        self._made_from: dict[Replica, tuple[frozenset[str] | None, str]] = {}

    def of(self, allowed: Allowed | None) -> ModelList:
        """Return the answer to /v1/models: for each model the entry of its first ready replica.

        `allowed`: only models of replicas in these regions; `None`: all regions. Ejected replicas
        of these regions count, too, because they are used if no other one is up (`Residents`).
        """
        key = "" if allowed is None else allowed.lane
        found = self._lists.get(key)
        if found is None:
            if len(self._lists) >= _LISTS_MAX:
                self._lists.clear()
            self._lists[key] = found = ModelList(self._entries(allowed))
        return found

    def names_text(self, models: Collection[str] | None, allowed: Allowed | None) -> str:
        """Return the served models as text for an error message.

        `models`: the models that the client may use; `None`: all. `allowed`: the regions to which
        its requests may be sent; `None`: all.
        """
        configured = self._models.names
        names: Iterable[str] = self._models.pools.names
        if configured.is_used:
            names = {name for name in names if name not in configured.pooled}
            names |= {named.name for named in configured.aliases}
        if allowed is not None:
            listed = self.of(allowed)
            names = [name for name in names if listed.entry(name) is not None]
        return served_text(names, models)

    def _entries(self, allowed: Allowed | None) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        listed: Iterable[Replica] = self._serving.ready_ids.values()
        if allowed is not None:
            replicas = self._replicas.values()
            listed = [r for r in replicas if allowed.allows(r.region) and _is_listed(r)]
        for replica in listed:
            for name, entry in replica.listed.objects.items():
                found.setdefault(name, entry)
            for name in sorted((replica.models or frozenset()) - {ANY}):
                found.setdefault(
                    name, {"id": name, "object": "model", "created": 0, "owned_by": "hedgerow"}
                )
        for named in self._models.names.aliases:
            for target in named.targets:
                shown = found.get(self._models.listed_name(target.model))
                if shown is not None and self._serving.of(target.routed, allowed):
                    found.setdefault(named.name, {**shown, "id": named.name})
        return found

    def clear(self) -> None:
        """Make the lists again when they are next needed."""
        self._lists.clear()

    def rebuild(self) -> None:
        """Drop the lists if the models have changed. Called after a change of the fleet."""
        replicas = self._replicas.values()
        made_from = {r: (r.models, r.region) for r in replicas if _is_listed(r)}
        if made_from != self._made_from:
            self._made_from = made_from
            self._lists.clear()


def _is_listed(replica: Replica) -> bool:
    """Whether a list of models for some request contains the models of the replica."""
    return replica.is_fit or not replica.is_away
