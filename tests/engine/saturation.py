"""Two engines full of batch requests, with a few urgent ones among them: who waited how long.

Batch clients ask without end, so that as many requests wait at any time as there are clients beyond
the engines' slots. The urgent ones come at moments drawn before the run (open loop), the same in
every run of the same seed; each is measured, from when it was due. Prompts fill the engines' KV
caches before their slots, as they do in life; no two begin alike, so that nothing is cached.

The clients are the light ones of the benches: the engines need the cores.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from time import perf_counter, perf_counter_ns

import httpx

from bench.fleet.statistics import quantile
from bench.fleet.stream import Answer, Link
from tests.engine import bodies
from tests.engine.fleet import SLOTS, Engine, Hedgerow
from tests.engine.load import CHAT

CLIENTS = 5 * SLOTS  # of batch requests: more than half of them wait at any time
PROMPT, OUTPUT = (700, 1500), (24, 72)  # tokens of a batch request; of its prompt, characters
URGENT_PROMPT, URGENT_OUTPUT = 100, 4
WARM_S = 2.0  # until batch requests that began together no longer end together
SAMPLE_S = 0.25  # between two looks at the engines' metrics
RUN_WITHIN_S = 300.0


@dataclass(slots=True)
class Asked:
    """One request and what came of it."""

    due: float  # perf_counter
    answer: Answer

    @property
    def first_s(self) -> float:
        """To its first content."""
        assert self.answer.first_at is not None
        return self.answer.first_at - self.due

    @property
    def per_token_s(self) -> float:
        """Between its tokens."""
        (first, count), *_, (last, _) = self.answer.token_times
        return (last - first) / (len(self.answer.text) - count)


@dataclass(slots=True)
class Seen:
    """What was seen in one run, or in several of one kind."""

    urgent_s: list[float] = field(default_factory=list)  # to first tokens
    batch_s: list[float] = field(default_factory=list)  # ... of those due in the same time
    batch_per_token_s: list[float] = field(default_factory=list)
    batch_tokens: int = 0
    seconds: float = 0.0
    preemptions: int = 0  # by the engines
    waiting: list[int] = field(default_factory=list)  # at one engine, by its own count

    def add(self, other: Seen) -> None:
        self.urgent_s += other.urgent_s
        self.batch_s += other.batch_s
        self.batch_per_token_s += other.batch_per_token_s
        self.batch_tokens += other.batch_tokens
        self.seconds += other.seconds
        self.preemptions += other.preemptions
        self.waiting += other.waiting


def at(values: Sequence[float], q: float) -> float:
    """The quantile `q` of something that was seen."""
    found = quantile(sorted(values), q)
    assert found is not None
    return found


class Saturation:
    """One run against one router."""

    def __init__(self, router: Hedgerow, engines: Sequence[Engine], seed: str) -> None:
        self._host, _, port = router.url.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._engines = engines
        self._rng = Random(seed)
        self._batch: list[Asked] = []
        self._links: list[Link] = []
        self._seen = Seen()

    async def run(self, urgent: str, requests: int, rate: float) -> Seen:
        """So many measured requests that say they are of the class `urgent`, so many a second."""
        gaps = [self._rng.expovariate(rate) for _ in range(requests)]
        try:
            async with (
                asyncio.timeout(RUN_WITHIN_S),
                httpx.AsyncClient(timeout=RUN_WITHIN_S) as http,
                asyncio.TaskGroup() as group,
            ):
                beside = [group.create_task(self._client()) for _ in range(CLIENTS)]
                await asyncio.sleep(WARM_S)
                beside.append(group.create_task(self._sample(http)))
                began = perf_counter()
                found = await self._come(urgent, began, gaps)
                ended = perf_counter()
                for task in beside:
                    task.cancel()
            return self._judged(found, began, ended, began + sum(gaps))
        finally:
            for link in self._links:
                link.close()

    def _judged(self, urgent: list[Asked], began: float, ended: float, last_due: float) -> Seen:
        seen = self._seen
        seen.urgent_s = [one.first_s for one in urgent]
        seen.seconds = ended - began
        for one in self._batch:
            times = one.answer.token_times
            seen.batch_tokens += sum(count for when, count in times if began <= when < ended)
            if one.answer.first_at is not None and began <= one.due < last_due:
                seen.batch_s.append(one.first_s)
            is_whole = one.answer.text != ""
            if is_whole and len(times) > 1 and began <= times[0][0] and times[-1][0] < ended:
                seen.batch_per_token_s.append(one.per_token_s)
        return seen

    # -- who asks -----------------------------------------------------------------------------

    async def _client(self) -> None:
        """One batch request after the other."""
        link = await self._link()
        while True:
            size, tokens = self._rng.randint(*PROMPT), self._rng.randint(*OUTPUT)
            await self._ask(link, "batch", size, tokens, perf_counter(), self._batch)

    async def _come(self, urgency: str, began: float, gaps: list[float]) -> list[Asked]:
        """The measured ones, each on a connection of its own."""
        found: list[Asked] = []
        due = began
        async with asyncio.TaskGroup() as group:
            for gap in gaps:
                due += gap
                await asyncio.sleep(due - perf_counter())
                group.create_task(self._one(urgency, due, found))
        return found

    async def _one(self, urgency: str, due: float, found: list[Asked]) -> None:
        link = await self._link()
        await self._ask(link, urgency, URGENT_PROMPT, URGENT_OUTPUT, due, found)

    async def _link(self) -> Link:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(Link, self._host, self._port)
        self._links.append(link)
        return link

    async def _ask(
        self, link: Link, urgency: str, size: int, tokens: int, due: float, into: list[Asked]
    ) -> None:
        text = f"{perf_counter_ns()} ".ljust(size, "x")
        body = json.dumps({**bodies.chat(text, tokens), "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {self._host}\r\nx-priority: {urgency}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ended = asyncio.Event()
        link.ask(head.encode() + body, lambda _: ended.set())
        asked = Asked(due, link.answer)
        into.append(asked)
        await ended.wait()
        assert not link.answer.error, f"{urgency}: {link.answer.error}"

    # -- what the engines say -----------------------------------------------------------------

    async def _sample(self, http: httpx.AsyncClient) -> None:
        before = -1
        while True:
            pages = await asyncio.gather(*(http.get(f"{e.url}/metrics") for e in self._engines))
            self._seen.waiting += [_sum(_WAITING, page.text) for page in pages]
            now = sum(_sum(_PREEMPTIONS, page.text) for page in pages)
            if before >= 0:
                self._seen.preemptions += now - before
            before = now
            await asyncio.sleep(SAMPLE_S)


def _series(name: str) -> re.Pattern[str]:
    """Read by a pattern: a parser of the whole page takes as long as a step of an engine."""
    return re.compile(rf"^{name}\{{[^}}]*\}} (\S+)$", re.MULTILINE)


_WAITING = _series("vllm:num_requests_waiting")
_PREEMPTIONS = _series("vllm:num_preemptions_total")


def _sum(series: re.Pattern[str], page: str) -> int:
    found = series.findall(page)
    assert found, series.pattern
    return int(sum(map(float, found)))
