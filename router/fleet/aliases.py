"""Which listed model stands for a name that no replica lists, so that an engine judges the name.

Some engines take any name, others put more behind it (`model:adapter`). Queues, routing and
prefixes go by the model that stands for such a name; the body keeps its own. The rules, in this
order:

1. `model:adapter` goes where `model` goes, if all replicas of that model have such names.
2. `ANY` stands for every name where a replica lists it: by its configuration (`models: ["*"]`,
   `unknown_models: forward`).
3. Where all replicas of the fleet serve the same models, one of these stands for every name, unless
   one of their engines is known to refuse names that it does not list, or one was told to
   (`unknown_models: reject`).

A name that nothing stands for is refused by the router.

Must never: wait, or judge a name that is listed.
"""

from __future__ import annotations

from typing import Final

from router.fleet.listed import ANY
from router.fleet.replica import Replica

_MORE: Final = ":"  # between a model and an adapter


def _refuses(replica: Replica) -> bool:
    told = replica.config.unknown_models
    return told == "reject" or (told is None and replica.descriptor.refuses_models)


def _has_adapters(replica: Replica) -> bool:
    return replica.descriptor.names_adapters and replica.config.unknown_models != "reject"


class Aliases:
    """Of one fleet."""

    __slots__ = ("_engines", "_extended", "_is_stale", "_replicas", "_stand_in")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes."""
        self._replicas = replicas
        self._engines: dict[Replica, str | None] = {}
        self._extended: frozenset[str] = frozenset()  # models of which there are adapters
        self._stand_in = ""
        self._is_stale = True

    def changed(self) -> None:
        """The fleet or the models of a replica have changed."""
        self._is_stale = True

    def noticed(self, replica: Replica) -> None:
        """The router has heard from the replica, so its engine may be known by now."""
        if self._engines.get(replica) != replica.engine:
            self._is_stale = True

    def of(self, name: str) -> str:
        """What stands for a name that nobody lists: a model, `ANY` or, if nothing does, itself."""
        if self._is_stale:
            self._build()
        model = name.rpartition(_MORE)[0]
        if model in self._extended:
            return model
        return self._stand_in or name

    def _build(self) -> None:
        self._is_stale = False
        replicas = [r for r in self._replicas.values() if r.models is not None]
        self._engines = {r: r.engine for r in self._replicas.values()}
        models: set[frozenset[str]] = {r.models for r in replicas if r.models is not None}
        plain: set[str] = set()
        for replica in replicas:
            if not _has_adapters(replica) and replica.models is not None:
                plain |= replica.models
        listed = frozenset[str]().union(*models)
        self._extended = listed - plain - {ANY}
        self._stand_in = ""
        if ANY in listed:
            self._stand_in = ANY
        elif len(models) == 1 and listed and not any(_refuses(r) for r in replicas):
            self._stand_in = min(listed)
