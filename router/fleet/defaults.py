"""What the replicas of each model's pool serve where a request names no model: their own models.

An engine that does not read a request's `model` serves its own model, also where the request names
one of its adapters. A key that may ask for some models only is judged by this table
(`intake/authority.py`).

The table is rebuilt after a change, at the first question; a question is one dict lookup. Replicas
with the same models share one entry, so a rebuild costs as much as the distinct lists are long.
Must never: do I/O, or look at replicas for each request.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.fleet.listed import ANY
from router.fleet.replica import Replica

# Engine ("": not detected), the names of the replica's own model, and those of its adapters.
Entry = tuple[str, frozenset[str], frozenset[str]]


class Defaults:
    """The own models of one fleet's pools."""

    __slots__ = ("_all", "_by_model", "_is_stale", "_replicas", "_seen")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes."""
        self._replicas = replicas
        self._seen: dict[Replica, tuple[str | None, frozenset[str]]] = {}  # engine, adapters
        self._by_model: dict[str, list[Entry]] = {}
        self._all: Sequence[Entry] = ()
        self._is_stale = True

    def changed(self) -> None:
        """The fleet or the models of a replica have changed."""
        self._is_stale = True

    def noticed(self, replica: Replica) -> None:
        """The router has heard from the replica: its engine or its adapters may be others now."""
        if self._seen.get(replica) != (replica.engine, replica.adapters):
            self._is_stale = True

    def of(self, model: str | None) -> Sequence[Entry]:
        """The entries of the replicas that serve a model; `None`: of the whole fleet."""
        if self._is_stale:
            self._build()
        return self._all if model is None else self._by_model.get(model, ())

    def _build(self) -> None:
        self._is_stale = False
        replicas = self._replicas.values()
        self._seen = {replica: (replica.engine, replica.adapters) for replica in replicas}
        owns: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        found: dict[tuple[frozenset[str], Entry], None] = {}
        for replica in replicas:
            models, adapters = replica.models, replica.adapters
            if models is None or not (replica.listed or models - {ANY}):
                continue  # what it serves is not known
            own = owns.get((models, adapters))
            if own is None:
                # A model that the configuration gives the replica is its own, unless the engine
                # lists it as an adapter. Several names may mean one model.
                own = owns[models, adapters] = models - adapters - {ANY}
            if not own and replica.listed is not None:
                own = replica.listed - adapters
            found[models, (replica.engine or "", own, adapters)] = None
        by_model: dict[str, list[Entry]] = {}
        for models, entry in found:
            for model in models:
                by_model.setdefault(model, []).append(entry)
        self._by_model = by_model
        self._all = list(dict.fromkeys([entry for _, entry in found]))
