"""The fleet behind an access log: its replicas, in groups of equal ones.

Two replicas are of one pool if some model was answered by both; every replica of a pool serves all
its models, unless the configuration lists its own. Equal are replicas of one pool with the same
sizes, and the same weight, limit and place in the configuration.

Bounded: `REPLICAS_MAX` replicas, `MODELS_MAX` models. Pure. Must never: invent a size that the log
does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.simulator.arrival import Arrival

REPLICAS_MAX: Final = 10_000
MODELS_MAX: Final = 1000  # of one replica
_SAME: Final = 0.05  # sizes that differ by less are equal: slots are learned, not reported


@dataclass(slots=True)
class _Seen:
    """One replica."""

    models: set[str]
    slots: int | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """Equal replicas, by their names in the log. None: the log does not say."""

    replicas: tuple[str, ...]
    models: tuple[str, ...] | None  # None: the whole fleet serves the same
    slots: int | None
    kv_tokens: int | None
    like: ReplicaConfig  # its weight, limit, zone and node

    def name(self, number: int) -> str:
        """For people: what it is and how many there are."""
        of = "" if self.models is None else f" for {', '.join(self.models[:3])}"
        of += " ..." if self.models is not None and len(self.models) > 3 else ""
        noun = "replica" if len(self.replicas) == 1 else "replicas"
        return f"{number}: {len(self.replicas):,} {noun}{of}"


class LoggedFleet:
    """What a pass over a log's arrivals has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        """How many replicas answered something."""
        return len(self._seen)

    def add(self, arrival: Arrival) -> None:
        logged = arrival.logged
        if logged is None or not logged.replica:
            return
        seen = self._seen.get(logged.replica)
        if seen is None:
            if len(self._seen) >= REPLICAS_MAX:
                return
            seen = self._seen[logged.replica] = _Seen(set())
        if arrival.model is not None and logged.is_ok and len(seen.models) < MODELS_MAX:
            seen.models.add(arrival.model)
        # The latest word: slots are learned as time goes on.
        seen.slots = logged.slots or seen.slots
        seen.kv_tokens = logged.kv_tokens or seen.kv_tokens

    def groups(self, config: Config) -> list[LoggedGroup]:
        """In the order of their first replicas in the log. `config`: by whose replicas of the same
        names weights, limits and places are known."""
        told = {replica.id: replica for replica in config.replicas}
        pools = _pools({name: seen.models for name, seen in self._seen.items()})
        models = {name: _models(told.get(name), pools[name]) for name in self._seen}
        is_one = len(set(models.values())) == 1
        found: list[LoggedGroup] = []
        for name, seen in self._seen.items():
            group = LoggedGroup(
                (name,),
                None if is_one else models[name] or None,
                seen.slots,
                seen.kv_tokens,
                told.get(name, _PLAIN),
            )
            for place, other in enumerate(found):
                if _is_equal(group, other):
                    found[place] = _joined(other, name)
                    break
            else:
                found.append(group)
        return found


_PLAIN: Final = ReplicaConfig(url="http://replica")


def _pools(models: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """By replica, all models of the replicas that it shares one with, and so on."""
    pools: list[set[str]] = []
    for mine in models.values():
        joined = set(mine)
        apart = []
        for pool in pools:
            if pool & joined:
                joined |= pool
            else:
                apart.append(pool)
        pools = [*apart, joined]
    return {
        name: frozenset(next((pool for pool in pools if pool & mine), ()))
        for name, mine in models.items()
    }


def _models(told: ReplicaConfig | None, pool: frozenset[str]) -> tuple[str, ...]:
    if told is not None and told.models:
        return tuple(sorted(told.models))
    return tuple(sorted(pool))


def _is_equal(one: LoggedGroup, other: LoggedGroup) -> bool:
    return (
        one.models == other.models
        and _is_like(one.slots, other.slots)
        and _is_like(one.kv_tokens, other.kv_tokens)
        and all(
            getattr(one.like, name) == getattr(other.like, name)
            for name in ("weight", "max_inflight", "zone", "node")
        )
    )


def _is_like(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _SAME * max(one, other)


def _joined(group: LoggedGroup, name: str) -> LoggedGroup:
    return LoggedGroup(
        (*group.replicas, name), group.models, group.slots, group.kv_tokens, group.like
    )


def numbers(groups: Sequence[LoggedGroup]) -> Iterator[tuple[int, str]]:
    """The number of each group, and the log's names of its replicas."""
    for number, group in enumerate(groups):
        for name in group.replicas:
            yield number, name
