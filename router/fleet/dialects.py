"""The priority dialect of each model's pool: the meaning of a number in a client's `priority`.

A dialect is the way in which an engine reads the request field `priority`. A model's pool is the
set of replicas that serve the model. The dialect of a pool is the one that all its replicas with a
known dialect share. The table of dialects is rebuilt at the first lookup after the fleet has
changed. Every other lookup is one dict access.

Must never: do I/O, or look at replicas for each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.replica import Replica

# Every engine of the pool is known, and none of them supports priorities.
NONE: Final = SILENT.name
MIXED: Final = "mixed"  # The engines of the pool read priority numbers in different ways.
UNKNOWN: Final = "unknown"  # No engine of the pool has been detected yet.


def spoken(replica: Replica) -> str:
    """Return the configured priority dialect of a replica, else the dialect of its engine.

    UNKNOWN: the replica has no configured dialect, and its engine was not detected yet.
    """
    configured = replica.config.priority
    if configured is not None and configured != NONE:
        return configured
    if replica.engine is None:
        return UNKNOWN
    return dialect_of_engine(replica).name


def dialect_of_engine(replica: Replica) -> Dialect:
    """Return the dialect of a replica's engine, regardless of the configuration."""
    engine = replica.descriptor
    low_first = engine.low_first
    return low_first if low_first is not None and replica.endpoint.low_first else engine.dialect


def common(dialects: Iterable[str]) -> str:
    """Return the dialect of a pool whose replicas have `dialects`: a common one, or MIXED, NONE or
    UNKNOWN."""
    found = set(dialects)
    known = found - {NONE, UNKNOWN}
    if len(known) == 1:
        return known.pop()
    if known:
        return MIXED
    return NONE if found == {NONE} else UNKNOWN


class Dialects:
    """The priority dialect of each model's pool in one fleet."""

    __slots__ = ("_all", "_any_model", "_by_model", "_is_stale", "_replicas")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes over time."""
        self._replicas = replicas
        self._by_model: dict[str, str] = {}
        self._any_model = UNKNOWN  # The dialect of replicas whose models are unknown.
        self._all = UNKNOWN
        self._is_stale = True

    def changed(self) -> None:
        """Note that the fleet or a fact of a replica has changed: the next lookup rebuilds this
        table."""
        self._is_stale = True

    def of(self, model: str | None) -> str:
        """Return the dialect of the model's pool; for `None`, of the whole fleet."""
        if self._is_stale:
            self._build()
        if model is None:
            return self._all
        return self._by_model.get(model, self._any_model)

    def _build(self) -> None:
        found = {r: spoken(r) for r in self._replicas.values()}
        any_model = {dialect for replica, dialect in found.items() if replica.models is None}
        by_model: dict[str, set[str]] = {}
        for replica, dialect in found.items():
            for model in replica.models or ():
                by_model.setdefault(model, set(any_model)).add(dialect)
        self._by_model = {model: common(dialects) for model, dialects in by_model.items()}
        self._any_model = common(any_model)
        self._all = common(found.values())
        self._is_stale = False
