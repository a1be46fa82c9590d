"""Maps a model name that no replica lists to the listed model under which its requests are handled.

Some engines accept any name; others accept more names than they list (`model:adapter`). For an
unlisted name, queues, routing and the prefix index use a listed model, which "stands for" the name.
The request body keeps the name that the client wrote, and the engine accepts or rejects it. These
rules find the listed model; the first rule that applies decides:

1. `model:adapter` stands for `model`, if the engines of all replicas of `model` accept such names.
   It stands for `adapter` if such engines list the adapter. So only replicas that list it serve it.
2. `ANY` stands for every name if a replica lists it by its configuration (`models: ["*"]` or
   `unknown_models: forward`).
3. If all replicas of the fleet serve the same models, one of these models stands for every name.
   This rule is off if one of the engines is known to refuse names that it does not list, or if a
   replica is configured to refuse them (`unknown_models: reject`).

The router refuses a name if no rule applies.

Must never: wait, or map a name that is listed.
"""

from __future__ import annotations

from typing import Final

from router.fleet.listed import ANY
from router.fleet.replica import Replica

_NONE: Final[frozenset[str]] = frozenset()
_MORE: Final = ":"  # Separates the model from the adapter in a name.


def _refuses(replica: Replica) -> bool:
    configured = replica.config.unknown_models
    return configured == "reject" or (configured is None and replica.descriptor.refuses_models)


def _has_adapters(replica: Replica) -> bool:
    return replica.descriptor.names_adapters and replica.config.unknown_models != "reject"


class Aliases:
    """Maps the model names that no replica of one fleet lists."""

    __slots__ = ("_adapters", "_extended", "_is_stale", "_replicas", "_stand_in")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes over time."""
        self._replicas = replicas
        # Models that may be requested with an adapter, in the form `model:adapter`.
        self._extended: frozenset[str] = frozenset()
        # The models of each listed adapter that may be requested in the form `model:adapter`.
        self._adapters: dict[str, frozenset[str]] = {}
        self._stand_in = ""
        self._is_stale = True

    def changed(self) -> None:
        """Note that the fleet or a fact of a replica has changed: the next lookup rebuilds this
        table."""
        self._is_stale = True

    def of(self, name: str) -> str:
        """Return the model that stands for an unlisted name, or `ANY`.

        Returns `name` itself if no rule applies.
        """
        if self._is_stale:
            self._build()
        model, _, adapter = name.rpartition(_MORE)
        if model in self._extended:
            return adapter if model in self._adapters.get(adapter, _NONE) else model
        return self._stand_in or name

    def _build(self) -> None:
        self._is_stale = False
        replicas = [r for r in self._replicas.values() if r.models is not None]
        models: set[frozenset[str]] = {r.models for r in replicas if r.models is not None}
        plain: set[str] = set()
        for replica in replicas:
            if not _has_adapters(replica) and replica.models is not None:
                plain |= replica.models
        listed = frozenset[str]().union(*models)
        self._extended = listed - plain - {ANY}
        self._adapters = {}
        for replica in replicas:
            own = (replica.models or _NONE) - replica.listed.adapters
            for adapter in replica.listed.adapters & self._extended:
                self._adapters[adapter] = self._adapters.get(adapter, _NONE) | own
        self._stand_in = ""
        if ANY in listed:
            self._stand_in = ANY
        elif len(models) == 1 and listed and not any(_refuses(r) for r in replicas):
            self._stand_in = min(listed)
