"""A DNS name whose records are replicas, as a source.

Each look asks only the questions that are due. The targets of SRV records are looked up as well.
NXDOMAIN and answers without records are valid: if two lookups in a row, at least `ttl_min` apart,
find no address, the name has no replicas. A lookup that fails changes nothing.

Must never: wait for more lookups at once than `_AT_ONCE`, so that a long answer does not flood the
name server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from router.config.address import parse_replica_url
from router.config.model import Discovery, DnsName
from router.core.clock import monotonic
from router.fleet.discovery.records import (
    Question,
    RecordCache,
    first_questions,
    found_by,
    services_of,
    target_questions,
)
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import Look, Source

if TYPE_CHECKING:
    from router.fleet.discovery.dns_client import DnsClient

_AT_ONCE: Final = 16  # Maximum number of lookups of one source at once.
_EMPTY_LOOKUPS: Final = 2  # Number of lookups in a row without an address that count as an answer.


class DnsSource(Source):
    """One name."""

    def __init__(self, name: DnsName, rules: Discovery, rng: Random) -> None:
        super().__init__(dns_name(name))
        self._dns_name = name
        self._rules = rules
        self._cache = RecordCache(rules, rng)
        self._records: list[object] = []  # The records from which `_found` was made.
        self._found: list[Found] = []
        self._client: DnsClient | None = None  # `None`: it must be created (again).
        self._empty_lookups = 0  # Number of lookups in a row without an address.
        self._had_found = False  # Whether the name had replicas.

    async def look(self) -> Look:
        name, cache = self._dns_name, self._cache
        questions = first_questions(name)
        is_new = bool(cache.due(questions, monotonic()))
        problems = await self._ask(questions)
        services = services_of(name, cache, self._rules.replicas_max)
        targets = target_questions(services)
        problems += await self._ask(targets)
        questions += targets
        cache.keep(questions)
        replies = [cache.reply(question) for question in questions]
        records = [services, *(sorted(reply.addresses) for reply in replies)]
        if records != self._records:  # Otherwise the order has changed, at most.
            self._records = records
            self._found = found_by(name, cache, services)
        found = self._found
        self._had_found = self._had_found or bool(found)
        is_empty = self._is_empty(questions, is_new)
        if not (found or problems or (is_empty and self._had_found)):
            problems = ["no record names a replica"]
        return Look(
            max(cache.wait_s(monotonic()), self._rules.ttl_min_s / 2),
            found if found or is_empty else None,
            all(cache.is_settled(question) for question in questions),
            problems[0] if problems else "",
        )

    def _is_empty(self, questions: Sequence[Question], is_new: bool) -> bool:
        """Count the lookups without an address. Returns whether the name has no replicas.

        `is_new`: this look has asked.
        """
        if self._found or not self._cache.is_empty(questions):
            self._empty_lookups = 0
        elif is_new:
            self._empty_lookups += 1
            if self._empty_lookups < _EMPTY_LOOKUPS:
                self._cache.ask_again(questions, monotonic())
        return self._empty_lookups >= _EMPTY_LOOKUPS

    async def _ask(self, questions: Sequence[Question]) -> list[str]:
        """Ask those questions that are due. Returns the texts of the problems."""
        due = self._cache.due(questions, monotonic())
        if not due:
            return []
        # The client is imported only here, because it needs an optional package.
        from router.fleet.discovery.dns_client import DnsClient, LookupFailed

        try:
            if self._client is None:
                self._client = await asyncio.to_thread(DnsClient, self._rules)
        except LookupFailed as err:
            for question in due:
                self._cache.failed(question, monotonic())
            return [str(err)]
        client = self._client
        slots = asyncio.Semaphore(_AT_ONCE)
        problems: list[str] = []
        answered: list[Question] = []

        async def ask(question: Question) -> None:
            async with slots:
                try:
                    if len(problems) >= _AT_ONCE and not answered:
                        raise LookupFailed(problems[0])  # The name server answers nothing.
                    reply = await client.ask(question)
                except LookupFailed as err:
                    problems.append(str(err))
                    self._cache.failed(question, monotonic())
                else:
                    answered.append(question)
                    self._cache.answered(question, reply, monotonic())

        async with asyncio.TaskGroup() as group:
            for question in due:
                group.create_task(ask(question))
        if problems:
            self._client = None  # The name servers of the system may have changed.
        return problems


def dns_name(name: DnsName) -> str:
    """Return the name of the source in logs and metrics. It is unique among the DNS names."""
    kind = "dns" if name.records == "address" else name.records
    url = parse_replica_url(name.url)
    return f"{kind}:{url.host if name.records == 'srv' else url.default_id}"
