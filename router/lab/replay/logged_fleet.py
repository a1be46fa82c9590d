"""Derives the fleet from an access log: its replicas, in groups of identical replicas.

Two replicas belong to one pool if both answered requests of the same model. Every replica of a pool
serves all models of the pool, unless the configuration lists the replica's models. The replicas of
a group are in one pool and have the same sizes in the log. They also have the same weight, limit of
requests, zone, node, region and pool in the configuration.

At most `REPLICAS_MAX` replicas and `MODELS_MAX` models per replica are kept, and the
answers in progress. Must never: guess a size that is not in the log.

`Seen`: reads a trace once, and collects its statistics, its fleet and its tenants.

`keys_of`: finds the API keys of the configuration that belong to the tenants of a log.

A log has salted hashes of the tenants. A hash in the log equals the hash of a key's name only if
both are made with the same `access_log.salt`. Without this setting, the router draws a new salt at
each start, and the tenants cannot be matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Final

from router.config.key_files import read_keys
from router.config.keys import KeyLine, KeysProblem
from router.config.model import Config, Replica as ReplicaConfig
from router.core.errors import ConfigError
from router.intake.flow import key_tenant
from router.lab.simulator.arrival import Arrival
from router.lab.traces import Trace, TraceFacts, describe
from router.observe.log.salt import Salter

REPLICAS_MAX: Final = 10_000
MODELS_MAX: Final = 1000  # maximum number of models of one replica
VALUES_MAX: Final = 10_000  # maximum number of different values of `slots` of one replica
# Smaller relative differences of sizes are ignored, because slots are estimates.
_SAME: Final = 0.05
# A replica may seem to run one request and 10 % more than its slots: the log has the times at the
# client, and an answer ends there later than at the engine.
_MUCH_MORE: Final = 1.1


@dataclass(slots=True)
class _Seen:
    """The models that a replica served in the log, and its sizes."""

    models: set[str] = field(default_factory=set)
    # The number of lines by their value of `slots`, from the first line with a value on. None: the
    # line has no value.
    stated: Counter[int | None] = field(default_factory=Counter)
    kv_tokens: int | None = None
    # The times at which an answer begins (+1) and ends (-1), from the present arrival on.
    changes: list[tuple[float, int]] = field(default_factory=list)
    running: int = 0  # number of answers in progress at the present arrival
    most: int = 0  # highest number of answers in progress

    def answered(self, first_s: float, end_s: float, now_s: float) -> None:
        """Count an answer with content between two times. `now_s`: the time of the arrival."""
        heappush(self.changes, (first_s, 1))
        heappush(self.changes, (end_s, -1))
        self.follow(now_s)

    def follow(self, until_s: float) -> None:
        while self.changes and self.changes[0][0] <= until_s:
            self.running += heappop(self.changes)[1]
            self.most = max(self.most, self.running)

    def slots(self) -> int | None:
        """Return the number of requests that the replica runs at once; None: unknown.

        The router learns this number, so some lines may have a wrong one. Numbers far below the
        number of answers in progress are ignored. The median of the others counts if most lines
        have one.
        """
        self.follow(inf)
        least = (self.most - 1) / _MUCH_MORE
        found = {slots: lines for slots, lines in self.stated.items() if slots and slots >= least}
        left = sum(found.values()) / 2
        if 2 * left < self.stated.total() / 2:
            return None
        for slots in sorted(found):
            left -= found[slots]
            if left < 0:
                return max(slots, self.most)
        return None


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """A group of identical replicas. A size is None if the log does not have it.

    The sizes are `slots`, the number of requests that a replica runs at once, and `kv_tokens`, the
    size of its KV cache.
    """

    replicas: tuple[str, ...]  # IDs in the log
    models: tuple[str, ...] | None  # None: the whole fleet serves the same models
    slots: int | None
    kv_tokens: int | None
    # A replica of the configuration with the weight, limit, zone and node of this group.
    like: ReplicaConfig

    def name(self, number: int) -> str:
        """Return a text for reports: the group's number, size and models."""
        of = "" if self.models is None else f" for {', '.join(self.models[:3])}"
        of += " ..." if self.models is not None and len(self.models) > 3 else ""
        noun = "replica" if len(self.replicas) == 1 else "replicas"
        return f"{number}: {len(self.replicas):,} {noun}{of}"


class LoggedFleet:
    """Collects the replicas during a pass over a log's arrivals."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        """The number of replicas that answered a request."""
        return len(self._seen)

    def add(self, arrival: Arrival) -> None:
        logged = arrival.logged
        if logged is None or not logged.replica:
            return
        seen = self._seen.get(logged.replica)
        if seen is None:
            if len(self._seen) >= REPLICAS_MAX:
                return
            seen = self._seen[logged.replica] = _Seen()
        model = logged.model or arrival.model
        if model is not None and logged.is_ok and len(seen.models) < MODELS_MAX:
            seen.models.add(model)
        if logged.slots or seen.stated:
            slots = logged.slots or None
            if slots in seen.stated or len(seen.stated) < VALUES_MAX:
                seen.stated[slots] += 1
        if logged.ttft_s is not None and arrival.stream:
            seen.answered(arrival.at + logged.ttft_s, arrival.at + logged.ended_s, arrival.at)
        seen.kv_tokens = logged.kv_tokens or seen.kv_tokens

    def groups(self, config: Config) -> list[LoggedGroup]:
        """Return the groups, in the order of their first replicas in the log.

        Weights, limits, zones and nodes are those of the replicas in `config` with the same IDs.
        """
        configured = {replica.id: replica for replica in config.replicas}
        pools = _pools({name: seen.models for name, seen in self._seen.items()})
        models = {name: _models(configured.get(name), pools[name]) for name in self._seen}
        is_one = len(set(models.values())) == 1
        found: list[LoggedGroup] = []
        for name, seen in self._seen.items():
            group = LoggedGroup(
                (name,),
                None if is_one else models[name] or None,
                seen.slots(),
                seen.kv_tokens,
                configured.get(name, _PLAIN),
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
    """Return the models of each replica's pool.

    Pools are connected components: two replicas are connected if they served the same model.
    """
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


def _models(configured: ReplicaConfig | None, pool: frozenset[str]) -> tuple[str, ...]:
    if configured is not None and configured.models:
        return tuple(sorted(configured.models))
    return tuple(sorted(pool))


def _is_equal(one: LoggedGroup, other: LoggedGroup) -> bool:
    return (
        one.models == other.models
        and _is_like(one.slots, other.slots)
        and _is_like(one.kv_tokens, other.kv_tokens)
        and all(
            getattr(one.like, name) == getattr(other.like, name)
            for name in ("weight", "max_inflight", "zone", "node", "region", "pool")
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
    """Yield pairs of a group's number and the ID of one of its replicas in the log."""
    for number, group in enumerate(groups):
        for name in group.replicas:
            yield number, name


TENANTS_MAX: Final = 100_000
_PROGRESS_EVERY: Final = 4096  # requests between two calls of `on_progress`


@dataclass(frozen=True, slots=True)
class Seen:
    """The statistics, the fleet and the tenants of a trace."""

    facts: TraceFacts
    fleet: LoggedFleet
    tenants: frozenset[str]  # tenants with a known key; at most `TENANTS_MAX`


def read(trace: Trace, on_progress: Callable[[float], None] | None) -> Seen:
    """Read a trace once. `on_progress` is called with the share that has been read.

    Raises TraceError, OSError, and ValueError for a trace without requests.
    """
    watched = _Watched(trace, on_progress)
    facts = describe(watched)
    return Seen(replace(facts, notes=trace.notes()), watched.fleet, frozenset(watched.tenants))


class _Watched:
    """Traffic that yields the requests of a trace and collects its fleet and tenants."""

    def __init__(self, trace: Trace, on_progress: Callable[[float], None] | None) -> None:
        self.name = trace.name
        self.block_tokens = trace.block_tokens
        self.fleet = LoggedFleet()
        self.tenants: set[str] = set()
        self._trace = trace
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[Arrival]:
        for number, arrival in enumerate(self._trace):
            self.fleet.add(arrival)
            if arrival.is_known and len(self.tenants) < TENANTS_MAX:
                self.tenants.add(arrival.tenant)
            if self._on_progress is not None and number % _PROGRESS_EVERY == 0:
                self._on_progress(self._trace.share())
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


def keys_of(config: Config, tenants: Collection[str]) -> tuple[dict[str, KeyLine], str]:
    """Return the keys by tenant of the log, and a text for the report.

    The text is "" if no keys are configured. Raises ConfigError for an invalid keys file.
    """
    if config.keys.file is None and config.keys.folder is None:
        return {}, ""
    try:
        lines = read_keys(config.keys)
    except KeysProblem as err:
        raise ConfigError([f"keys.{err.field}: {err}"]) from None
    if not config.access_log.salt:
        return {}, (
            "not simulated: access_log.salt is not set, so tenants of the log cannot be matched to "
            "keys; all tenants have the same weight"
        )
    salter = Salter(config.access_log.salt, 0)
    found = {}
    for line in lines:
        tenant = key_tenant(salter.name, line.name)
        if tenant in tenants:
            found[tenant] = line
    if not found:
        return {}, "no tenant of the log has a key: was it written with another access_log.salt?"
    return found, f"weights and limits of {len(found):,} of {len(tenants):,} tenants with keys"
