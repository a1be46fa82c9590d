"""Keeps the last valid answer of each source, and decides which replicas are members. Pure.

A replica of the configuration or of the admin API takes precedence over the same replica of a
source, and an earlier source over a later one. Two replicas are the same if they have the same ID
or the same address. A replica that the operator removed stays out until no source names it any
more, or until a reload.

The roster stores replicas as the sources state them. The configuration in force gives a region to
each replica without one, so a reload that changes this region applies at once.

Must never: do I/O, read a clock, or forget the answer of a source because a later one failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from router.config.address import parse_replica_url
from router.config.load import in_region
from router.config.model import Config, Replica

Engine = tuple[str, int, str]  # See `ReplicaUrl.engine`.


class Found(NamedTuple):
    """A replica that a source names."""

    replica: Replica  # As the source states it. The region may be "".
    priority: int = 0  # The priority of its SRV record (RFC 2782): the lowest number is first.
    share: float = 1.0  # The weight of its SRV record, divided by the mean weight.
    # Settings that the replica itself states. They take precedence over those of the source.
    stated: tuple[tuple[str, object], ...] = ()


# Applies new settings of a source to a replica of its last answer.
Renew = Callable[[Found], Found]


class Member(NamedTuple):
    """A replica that a source adds to the fleet."""

    replica: Replica
    source: str
    priority: int


class Roster:
    """The replicas that the sources of one router name."""

    def __init__(self, sources: Iterable[str], replicas_max: int) -> None:
        """`sources`: the names of the sources, in the order of precedence.

        `replicas_max`: maximum number of replicas of one source.
        """
        # By source. `None`: the source has not answered yet. An empty answer names no replica.
        self._answers: dict[str, tuple[Found, ...] | None] = dict.fromkeys(sources)
        self._most = replicas_max
        self._removed: set[Engine] = set()  # Removed by the operator, and named by a source.
        # Removed by the operator before a restart, and not yet named by a source. Sources that have
        # not answered may name them.
        self._passed_on: set[Engine] = set()
        self.version = 0  # Incremented by each change of the answers or of the removed replicas.

    @property
    def sizes(self) -> dict[str, int]:
        """The number of replicas in the last valid answer of each source."""
        return {name: len(answer or ()) for name, answer in self._answers.items()}

    @property
    def answering(self) -> list[str]:
        """The sources that have answered."""
        return [name for name, answer in self._answers.items() if answer is not None]

    @property
    def has_all_answers(self) -> bool:
        """Whether every source has answered."""
        return len(self.answering) == len(self._answers)

    @property
    def removed_engines(self) -> list[Engine]:
        """The replicas that the operator removed and that stay out."""
        return sorted(self._removed | self._passed_on)

    def adopted(self, sources: Mapping[str, Renew], replicas_max: int) -> Roster:
        """Return a roster with the settings of a reload. Sources that remain keep their answers.

        `sources`: by name, in the order of precedence.
        """
        roster = Roster(sources, replicas_max)
        for name, renew in sources.items():
            answer = self._answers.get(name)
            roster._answers[name] = None if answer is None else tuple(map(renew, answer))
        return roster

    def answered(self, source: str, found: Sequence[Found], *, is_complete: bool = True) -> int:
        """Store a valid answer. An answer without replicas removes those of the answer before.

        `is_complete`: False if a part of the source has never answered. Then the replicas of the
        answer before are kept. Returns the number of replicas that are left out because the answer
        is too long. Replicas of the answer before are kept first, so that a long answer in random
        order changes nothing.
        """
        if source not in self._answers:  # A reload has removed the source.
            return 0
        before = self._answers[source] or ()
        answer = [*found]
        if not is_complete:
            named = {each.replica.id for each in found}
            answer += [each for each in before if each.replica.id not in named]
        left_out = max(0, len(answer) - self._most)
        if left_out:
            known = {each.replica.id for each in before}
            answer.sort(key=lambda each: (each.replica.id not in known, each.replica.id))
        after = tuple(answer[: self._most])
        if after != self._answers[source]:
            self._answers[source] = after
            self._forget_unnamed()
            self.version += 1
        return left_out

    def removed(self, replica: Replica) -> None:
        """Record that the operator removed a replica."""
        self._removed |= {_engine(replica)} & self._named()
        self.version += 1

    def keep_out(self, engines: Iterable[Engine]) -> None:
        """Record what the operator removed in the process before this one."""
        self._passed_on |= set(engines)
        self._forget_unnamed()
        self.version += 1

    def _forget_unnamed(self) -> None:
        """Forget removed replicas that no source names any more."""
        if not self._removed and not self._passed_on:
            return
        named = self._named()
        self._removed = (self._removed | self._passed_on) & named
        self._passed_on = set() if self.has_all_answers else self._passed_on - named

    def _named(self) -> set[Engine]:
        answers = self._answers.values()
        return {_engine(each.replica) for answer in answers for each in answer or ()}

    def members(self, others: Iterable[Replica], config: Config) -> dict[str, Member]:
        """Return the replicas that the sources add to the fleet, by ID.

        `others`: the replicas of the configuration and of the admin API. `config`: the
        configuration that gives the region of replicas without one.
        """
        ids: set[str] = set()
        engines = self._removed | self._passed_on
        for replica in others:
            ids.add(replica.id)
            engines.add(_engine(replica))
        members: dict[str, Member] = {}
        for source, answer in self._answers.items():
            for replica, priority, *_ in answer or ():
                engine = _engine(replica)
                if replica.id not in ids and engine not in engines:
                    ids.add(replica.id)
                    engines.add(engine)
                    members[replica.id] = Member(in_region(replica, config), source, priority)
        return members


def standby(members: Mapping[str, Member], available: Collection[str]) -> set[str]:
    """Return the IDs of the replicas that get no requests because of their SRV priority.

    RFC 2782: a client must use the lowest priority number that it can reach. `available`: the IDs
    of the replicas that could get requests. If a source has no available replica, only the replicas
    of its lowest number are used.
    """
    lowest: dict[str, int] = {}
    reached: dict[str, int] = {}
    for name, member in members.items():
        first = lowest.setdefault(member.source, member.priority)
        lowest[member.source] = min(first, member.priority)
        if name in available:
            first = reached.setdefault(member.source, member.priority)
            reached[member.source] = min(first, member.priority)
    used = {**lowest, **reached}
    return {name for name, member in members.items() if member.priority > used[member.source]}


def _engine(replica: Replica) -> Engine:
    return _engine_at(replica.url)


@lru_cache(maxsize=4096)  # The URLs of a large fleet are compared after each change.
def _engine_at(url: str) -> Engine:
    return parse_replica_url(url).engine
