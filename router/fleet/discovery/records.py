"""Keeps the DNS records of one name, and derives the replicas that they name. Pure.

Each question (a name and a type of records) has its own TTL and its own back-off. If one question
fails, its last records are still used, and the other questions are not affected.

Must never: do I/O, or read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from random import Random
from typing import Final, NamedTuple

import msgspec

from router.config.address import parse_replica_url
from router.config.model import Discovery, DnsName, Replica, ReplicaSettings
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import lifetime_s, retry_after_s

A: Final = "A"
AAAA: Final = "AAAA"
SRV: Final = "SRV"
_KINDS: Final = {"address": (A, AAAA), "a": (A,), "aaaa": (AAAA,), "srv": (SRV,)}
# The weight of an SRV record with weight 0, as a share of the mean weight. RFC 2782: such a record
# has a very small chance of being selected.
_LEAST_WEIGHT: Final = 0.01
# After this many failures in a row, a question without any valid reply is not awaited any more.
_AWAITED_FAILURES: Final = 3


class Question(NamedTuple):
    """A name, and the type of records that is looked up."""

    name: str
    kind: str  # A, AAAA or SRV.


class Service(NamedTuple):
    """The data of an SRV record (RFC 2782)."""

    priority: int
    weight: int
    port: int
    target: str


class Reply(NamedTuple):
    """A valid answer to a question. An answer without records is valid, too."""

    ttl_s: float
    addresses: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()


class _Known:
    """What is known about one question. Times are monotonic seconds."""

    __slots__ = ("due", "failures", "has_reply", "reply")

    def __init__(self) -> None:
        self.reply = Reply(0.0)
        self.has_reply = False  # Whether `reply` is the reply of a name server.
        self.due = 0.0
        self.failures = 0  # In a row.


class RecordCache:
    """The last valid records of each question, and when the question is asked again."""

    def __init__(self, rules: Discovery, rng: Random) -> None:
        self._rules = rules
        self._rng = rng
        self._known: dict[Question, _Known] = {}

    def due(self, questions: Iterable[Question], now: float) -> list[Question]:
        """Return the questions that have to be asked now."""
        return [q for q in questions if q not in self._known or self._known[q].due <= now]

    def answered(self, question: Question, reply: Reply, now: float) -> None:
        known = self._known.setdefault(question, _Known())
        known.reply = reply
        known.has_reply = True
        known.failures = 0
        known.due = now + lifetime_s(reply.ttl_s, self._rules)

    def failed(self, question: Question, now: float) -> None:
        """Record a lookup without a valid answer. The last records are kept."""
        known = self._known.setdefault(question, _Known())
        known.failures += 1
        known.due = now + retry_after_s(known.failures, self._rules, self._rng)

    def reply(self, question: Question) -> Reply:
        """Return the last valid reply; an empty one if there was none."""
        known = self._known.get(question)
        return Reply(0.0) if known is None else known.reply

    def is_settled(self, question: Question) -> bool:
        """Return whether the question had a valid reply, or has failed so often that its records
        are no longer awaited."""
        known = self._known.get(question)
        if known is None:
            return False
        return known.has_reply or known.failures >= _AWAITED_FAILURES

    def is_empty(self, questions: Iterable[Question]) -> bool:
        """Return whether the last lookup of each question was answered, and none has an address."""
        known = [self._known.get(question) for question in questions]
        return all(
            k is not None and k.has_reply and not k.failures and not k.reply.addresses
            for k in known
        )

    def ask_again(self, questions: Iterable[Question], now: float) -> None:
        """Ask these questions again after the shortest time, whatever the TTL of their replies."""
        for question in questions:
            self._known[question].due = now + self._rules.ttl_min_s

    def keep(self, questions: Sequence[Question]) -> None:
        """Forget all other questions."""
        self._known = {q: self._known[q] for q in questions if q in self._known}

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next question is due, at most `ttl_max`."""
        latest = now + self._rules.ttl_max_s
        return max(0.0, min([latest, *(known.due for known in self._known.values())]) - now)


def first_questions(name: DnsName) -> list[Question]:
    """Return the questions about the name itself."""
    host = parse_replica_url(name.url).host
    return [Question(host, kind) for kind in _KINDS[name.records]]


def services_of(name: DnsName, cache: RecordCache, most: int) -> list[Service]:
    """Return the usable SRV records of a name, at most `most`.

    The target "." means that the service is not available (RFC 2782).
    """
    found = [s for q in first_questions(name) for s in cache.reply(q).services]
    return sorted({s for s in found if s.port and s.target})[:most]


def target_questions(services: Iterable[Service]) -> list[Question]:
    """Return the questions about the targets of SRV records."""
    targets = dict.fromkeys(service.target for service in services)
    return [Question(target, kind) for target in targets for kind in (A, AAAA)]


def found_by(name: DnsName, cache: RecordCache, services: Sequence[Service]) -> list[Found]:
    """Return the replicas of a name, each address once.

    `services`: the result of `services_of`.
    """
    if name.records == "srv":
        found = _by_services(name, cache, services)
    else:
        port = parse_replica_url(name.url).port
        found = (
            Found(_replica(name, address, port))
            for question in first_questions(name)
            for address in _usable(cache.reply(question).addresses)
        )
    return list({each.replica.id: each for each in found}.values())


def _by_services(name: DnsName, cache: RecordCache, services: Sequence[Service]) -> Iterator[Found]:
    means = _mean_weights(services)
    for service in services:
        # The two families are most often two addresses of one engine, so only one is used.
        addresses = _usable(cache.reply(Question(service.target, A)).addresses)
        addresses = addresses or _usable(cache.reply(Question(service.target, AAAA)).addresses)
        mean = means[service.priority]
        share = max(service.weight / mean, _LEAST_WEIGHT) if mean else 1.0
        for address in addresses:
            replica = _replica(name, address, service.port, share)
            yield Found(replica, service.priority, share)


def renewed(found: Found, name: DnsName) -> Found:
    """Return a replica of an earlier answer with the present settings of the name."""
    url = parse_replica_url(found.replica.url)
    return found._replace(replica=_replica(name, url.host, url.port, found.share))


def _mean_weights(services: Iterable[Service]) -> dict[int, float]:
    """Return the mean weight of the records of each priority.

    A weight is divided by the mean, because only the ratio of weights has a meaning in DNS. So a
    replica of mean weight gets as many requests as a replica of another source.
    """
    weights: dict[int, list[int]] = {}
    for service in services:
        weights.setdefault(service.priority, []).append(service.weight)
    return {priority: sum(each) / len(each) for priority, each in weights.items()}


def _replica(name: DnsName, address: str, port: int, share: float = 1.0) -> Replica:
    url = parse_replica_url(name.url).at(address, port)
    shared = {field: getattr(name, field) for field in ReplicaSettings.__struct_fields__}
    made = Replica(url=url, **{**shared, "weight": name.weight * share})
    return msgspec.structs.replace(made, id=parse_replica_url(url).default_id)


def _usable(addresses: Iterable[str]) -> list[str]:
    """Leave out addresses that no replica can have, such as 0.0.0.0."""
    found = [ip_address(address) for address in addresses]
    return [str(a) for a in found if not (a.is_unspecified or a.is_multicast)]
