"""Finds each replica's own models: the models that it serves if a request names no model.

An engine that ignores the field `model` of a request serves its own model, even if the request
names one of its adapters. So `intake/authority.py` reads this table to decide whether an API key
with a list of allowed models may use a replica with such an engine.

The table is rebuilt at the first lookup after the fleet has changed. Every other lookup is one dict
access. Replicas with the same models share one entry, so the cost of a rebuild is proportional to
the total length of the distinct model lists.

Must never: do I/O, or look at replicas for each request.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.fleet.listed import ANY
from router.fleet.replica import Replica

# An entry of the table: the engine's name ("" if not detected), the names of the replica's own
# models, and the names of its adapters.
ModelsOfReplica = tuple[str, frozenset[str], frozenset[str]]


class Defaults:
    """The own models of one fleet's replicas, by each model that the replicas serve."""

    __slots__ = ("_all", "_by_model", "_is_stale", "_replicas")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes over time."""
        self._replicas = replicas
        self._by_model: dict[str, list[ModelsOfReplica]] = {}
        self._all: Sequence[ModelsOfReplica] = ()
        self._is_stale = True

    def changed(self) -> None:
        """Note that the fleet or a fact of a replica has changed: the next lookup rebuilds this
        table."""
        self._is_stale = True

    def of(self, model: str | None) -> Sequence[ModelsOfReplica]:
        """Return the entries of the replicas that serve `model`; `None`: of all replicas."""
        if self._is_stale:
            self._build()
        return self._all if model is None else self._by_model.get(model, ())

    def _build(self) -> None:
        self._is_stale = False
        owns: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        found: dict[tuple[frozenset[str], ModelsOfReplica], None] = {}
        for replica in self._replicas.values():
            models, adapters = replica.models, replica.listed.adapters
            if models is None or not (replica.listed.names or models - {ANY}):
                continue  # The replica's models are unknown.
            own = owns.get((models, adapters))
            if own is None:
                # A configured model counts as the replica's own model, unless the engine lists it
                # as an adapter. Several configured names may mean the same model.
                own = owns[models, adapters] = models - adapters - {ANY}
            if not own and replica.listed.names is not None:
                own = replica.listed.names - adapters
            found[models, (replica.engine or "", own, adapters)] = None
        by_model: dict[str, list[ModelsOfReplica]] = {}
        for models, entry in found:
            for model in models:
                by_model.setdefault(model, []).append(entry)
        self._by_model = by_model
        self._all = list(dict.fromkeys([entry for _, entry in found]))
