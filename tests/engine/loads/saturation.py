"""Two engines full of batch requests, with a few urgent ones among them, and their waits.

Batch clients send requests continuously, so that always as many requests wait as there are clients
beyond the engines' slots. The urgent ones arrive at times drawn before the run (open loop), equal
for equal seeds; each wait is measured from the time when the request was due. Prompts fill the
engines' KV caches before their slots, as in production; no two prompts begin alike, so that nothing
is cached.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from time import perf_counter, perf_counter_ns
from typing import Any

import httpx

from bench.fleet.statistics import quantile
from bench.fleet.stream import Answer, Link
from tests.engine.loads.link import ask, opened
from tests.engine.machine.fleet import SLOTS, Engine, Hedgerow

CLIENTS = 6 * SLOTS  # number of batch clients: two thirds of their requests wait at any time
PROMPT, OUTPUT = (700, 1500), (24, 72)  # sizes of batch requests: prompt characters, output tokens
URGENT_PROMPT, URGENT_OUTPUT = 100, 4
WARM_S = 2.0  # seconds until batch requests that began together no longer end together
SAMPLE_S = 0.25  # seconds between two reads of the engines' metrics
RUN_WITHIN_S = 300.0


@dataclass(slots=True)
class Asked:
    """One request and its result."""

    due: float  # by the clock perf_counter
    answer: Answer
    _ended: asyncio.Event

    async def whole(self) -> None:
        """Return when the complete answer has arrived."""
        await self._ended.wait()
        assert not self.answer.error, self.answer.error

    @property
    def first_s(self) -> float:
        """Time to its first content."""
        assert self.answer.first_at is not None
        return self.answer.first_at - self.due

    @property
    def per_token_s(self) -> float:
        """Time between its tokens."""
        (first, count), *_, (last, _) = self.answer.token_times
        return (last - first) / (len(self.answer.text) - count)


@dataclass(slots=True)
class Seen:
    """Results of one run, or of several of one kind."""

    # Seconds to first tokens of urgent requests.
    urgent_s: list[float] = field(default_factory=list)
    # Wait of each urgent request, relative to that of the batch request due nearest in time. The
    # queue grows during the run, so other batch requests are not comparable.
    gaps: list[float] = field(default_factory=list)
    batch_per_token_s: list[float] = field(default_factory=list)
    batch_tokens: int = 0
    seconds: float = 0.0
    preemptions: int = 0  # number of preemptions by the engines
    # Requests waiting at one engine, by its own count, per sample.
    waiting: list[int] = field(default_factory=list)

    @classmethod
    def of_all(cls, several: Sequence[Seen]) -> Seen:
        """Merge several runs into one."""
        whole = cls()
        for one in several:
            whole.urgent_s += one.urgent_s
            whole.gaps += one.gaps
            whole.batch_per_token_s += one.batch_per_token_s
            whole.batch_tokens += one.batch_tokens
            whole.seconds += one.seconds
            whole.preemptions += one.preemptions
            whole.waiting += one.waiting
        return whole


def at(values: Sequence[float], q: float) -> float:
    """The quantile `q` of the values."""
    found = quantile(sorted(values), q)
    assert found is not None
    return found


class Saturation:
    """One run against one router."""

    def __init__(self, router: Hedgerow, engines: Sequence[Engine], seed: str) -> None:
        self._url = router.url
        self._engines = engines
        self._seed = seed
        self._sizes = Random(f"{seed} sizes")
        self._batch: list[Asked] = []
        self._links: list[Link] = []
        self._waiting: list[int] = []
        self._preemptions: list[tuple[float, int]] = []  # per sample: time, total number so far

    async def run(self, urgency: str, requests: int, rate: float) -> Seen:
        """Run `requests` measured requests of the class `urgency`, `rate` per second."""
        try:
            async with (
                asyncio.timeout(RUN_WITHIN_S),
                httpx.AsyncClient(timeout=RUN_WITHIN_S) as http,
                asyncio.TaskGroup() as group,
            ):
                beside: list[asyncio.Task[Any]]
                beside = [group.create_task(self._client()) for _ in range(CLIENTS)]
                await asyncio.sleep(WARM_S)
                beside.append(group.create_task(self._sample(http)))
                moments = self._moments(rate)
                measured: list[asyncio.Task[Any]] = []
                await self._come(group, urgency, islice(moments, requests), measured)
                # Further urgent requests arrive, so that all are served under the same load.
                beside.append(group.create_task(self._come(group, urgency, moments, beside)))
                urgent = [await task for task in measured]
                ended = perf_counter()
                for task in beside:
                    task.cancel()
            return self._judged(urgent, ended)
        finally:
            for link in self._links:
                link.close()

    def _judged(self, urgent: list[Asked], ended: float) -> Seen:
        # Batch requests are counted while urgent ones are served: from the first token of an urgent
        # request on.
        begun = min(one.due + one.first_s for one in urgent)
        preemptions = [count for when, count in self._preemptions if when >= begun]
        seen = Seen(
            urgent_s=[one.first_s for one in urgent],
            seconds=ended - begun,
            preemptions=preemptions[-1] - preemptions[0],
            waiting=self._waiting,
        )
        for one in self._batch:
            times = one.answer.token_times
            seen.batch_tokens += sum(count for when, count in times if begun <= when < ended)
            is_whole = one.answer.text != ""
            if is_whole and len(times) > 1 and begun <= times[0][0] and times[-1][0] < ended:
                seen.batch_per_token_s.append(one.per_token_s)
        begun_batch = [one for one in self._batch if one.answer.token_times]
        for one in urgent:
            equal = min(begun_batch, key=lambda other: abs(other.due - one.due))
            seen.gaps.append(one.first_s / equal.first_s)
        return seen

    # -- the clients ---------------------------------------------------------------------------

    async def _client(self) -> None:
        """Send one batch request after the other."""
        link = await self._link()
        while True:
            size, tokens = self._sizes.randint(*PROMPT), self._sizes.randint(*OUTPUT)
            asked = self._ask(link, "batch", size, tokens, perf_counter())
            self._batch.append(asked)
            await asked.whole()

    def _moments(self, rate: float) -> Iterator[float]:
        """Arrival times of urgent requests, from now on (Poisson)."""
        gaps = Random(f"{self._seed} gaps")
        due = perf_counter()
        while True:
            due += gaps.expovariate(rate)
            yield due

    async def _come(
        self,
        group: asyncio.TaskGroup,
        urgency: str,
        moments: Iterator[float],
        into: list[asyncio.Task[Any]],
    ) -> None:
        for due in moments:
            await asyncio.sleep(due - perf_counter())
            into.append(group.create_task(self._one(urgency, due)))

    async def _one(self, urgency: str, due: float) -> Asked:
        """An urgent request on its own connection."""
        link = await self._link()
        asked = self._ask(link, urgency, URGENT_PROMPT, URGENT_OUTPUT, due)
        await asked.whole()
        return asked

    async def _link(self) -> Link:
        link = await opened(self._url)
        self._links.append(link)
        return link

    def _ask(self, link: Link, urgency: str, size: int, tokens: int, due: float) -> Asked:
        text = f"{perf_counter_ns()} ".ljust(size, "x")
        return Asked(due, *ask(link, text, tokens, f"x-priority: {urgency}\r\n"))

    # -- the engines' metrics -----------------------------------------------------------------

    async def _sample(self, http: httpx.AsyncClient) -> None:
        while True:
            pages = await asyncio.gather(*(http.get(f"{e.url}/metrics") for e in self._engines))
            self._waiting += [_sum(_WAITING, page.text) for page in pages]
            preemptions = sum(_sum(_PREEMPTIONS, page.text) for page in pages)
            self._preemptions.append((perf_counter(), preemptions))
            await asyncio.sleep(SAMPLE_S)


def _series(name: str) -> re.Pattern[str]:
    """Read with a pattern: parsing the whole page takes as long as a step of an engine."""
    return re.compile(rf"^{name}\{{[^}}]*\}} (\S+)$", re.MULTILINE)


_WAITING = _series("vllm:num_requests_waiting")
_PREEMPTIONS = _series("vllm:num_preemptions_total")


def _sum(series: re.Pattern[str], page: str) -> int:
    found = series.findall(page)
    assert found, series.pattern
    return int(sum(map(float, found)))
