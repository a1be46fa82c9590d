"""The priority dialect of each model's pool: what a number in a client's body means there.

A dialect is the way in which an engine reads the field `priority`. A pool speaks the dialect that
all of its replicas with a known dialect share. The table is rebuilt after a change, at the first
question; a question is one dict lookup. Must never: do I/O, or look at replicas for each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.replica import Replica

NONE: Final = SILENT.name  # every engine of the pool is known, and none of them has priorities
MIXED: Final = "mixed"  # the pool's engines read numbers in different ways
UNKNOWN: Final = "unknown"  # no engine of the pool has been detected yet


def spoken(replica: Replica) -> str:
    """The dialect of a replica: the configured one, else its engine's; NONE or UNKNOWN."""
    configured = replica.config.priority
    if configured is not None and configured != NONE:
        return configured
    if replica.engine is None:
        return UNKNOWN
    return dialect_of_engine(replica).name


def dialect_of_engine(replica: Replica) -> Dialect:
    """The dialect of a replica's engine, whatever is configured."""
    engine = replica.descriptor
    low_first = engine.low_first
    return low_first if low_first is not None and replica.low_first else engine.dialect


def common(dialects: Iterable[str]) -> str:
    """The dialect of replicas that speak these."""
    found = set(dialects)
    known = found - {NONE, UNKNOWN}
    if len(known) == 1:
        return known.pop()
    if known:
        return MIXED
    return NONE if found == {NONE} else UNKNOWN


class Dialects:
    """The dialects of one fleet's pools."""

    __slots__ = ("_all", "_any_model", "_by_model", "_is_stale", "_replicas", "_spoken")

    def __init__(self, replicas: dict[str, Replica]) -> None:
        """`replicas`: the fleet's own dict, which changes."""
        self._replicas = replicas
        self._spoken: dict[Replica, str] = {}
        self._by_model: dict[str, str] = {}
        self._any_model = UNKNOWN  # of replicas whose models are not known
        self._all = UNKNOWN
        self._is_stale = True

    def changed(self) -> None:
        """The fleet or the models of a replica have changed."""
        self._is_stale = True

    def noticed(self, replica: Replica) -> None:
        """The router has heard from the replica, so its engine may be known by now."""
        if self._spoken.get(replica) != spoken(replica):
            self._is_stale = True

    def of(self, model: str | None) -> str:
        """The dialect of the model's pool; `None`: of the whole fleet."""
        if self._is_stale:
            self._build()
        if model is None:
            return self._all
        return self._by_model.get(model, self._any_model)

    def _build(self) -> None:
        self._spoken = found = {r: spoken(r) for r in self._replicas.values()}
        any_model = {dialect for replica, dialect in found.items() if replica.models is None}
        by_model: dict[str, set[str]] = {}
        for replica, dialect in found.items():
            for model in replica.models or ():
                by_model.setdefault(model, set(any_model)).add(dialect)
        self._by_model = {model: common(dialects) for model, dialects in by_model.items()}
        self._any_model = common(any_model)
        self._all = common(found.values())
        self._is_stale = False
