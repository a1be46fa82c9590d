"""Gauges that lag by one second, like vLLM's: a burst is spread, and engines are not polled
often.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from time import monotonic

import pytest

from router.fleet.learned_capacity import FIRST
from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import chat
from tests.harness.running import Router, running, virtual_scenario

LAGGING = {"max_num_seqs": 4, "gauge_lag_s": 1.0, "profile": "fast", "speed": 1.0}
# Maximum number of requests at a replica of unknown size: the assumed slots, and three waiting
# requests. All requests of a burst wait at the engine until its next step starts some of them.
AT_MOST = int(FIRST) + 3
SHIPPED = {"polling": {"interval_s": 1.0}, "policy": "least_tokens"}


@asynccontextmanager
async def two_engines() -> AsyncIterator[tuple[Emulated, Emulated, Router]]:
    async with (
        emulated("vllm", **LAGGING) as one,
        emulated("vllm", **LAGGING) as two,
        running(one.url, two.url, **SHIPPED) as router,
    ):
        yield one, two, router


async def ask(router: Router, **body: object) -> int:
    status = (await router.ask(chat(**{"max_tokens": 20, "ignore_eos": True, **body}))).status
    return status


def peak(engine: Emulated) -> int:
    return engine.engine.core.peak_waiting


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("priority", ["normal", "batch"])
@virtual_scenario
async def test_sixty_at_once_are_shared_by_two_engines(stream: bool, priority: str) -> None:
    """The requests wait at the router, not at an engine whose gauges do not show them yet."""
    async with two_engines() as (one, two, router):
        await asyncio.sleep(1.5)  # only idle polls: no load is known
        found = await asyncio.gather(
            *(ask(router, stream=stream, priority=priority) for _ in range(60))
        )
        assert set(found) == {200}
        shares = sorted(engine.engine.stats.asked for engine in (one, two))
        assert sum(shares) == 60
        assert shares[1] <= 36, shares
        assert max(peak(one), peak(two)) <= AT_MOST, "most of them waited at the router"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@virtual_scenario
async def test_a_burst_before_the_first_poll_is_held_back(stream: bool) -> None:
    """An engine that was not polled yet is not treated as one without metrics."""
    async with two_engines() as (one, two, router):
        found = await asyncio.gather(*(ask(router, stream=stream) for _ in range(60)))
        assert set(found) == {200}
        assert max(peak(one), peak(two)) <= AT_MOST, "most of them waited at the router"


@pytest.mark.parametrize("priority", ["normal", "batch"])
@virtual_scenario
async def test_a_full_queue_of_whole_answers_asks_an_engine_twice_a_second(priority: str) -> None:
    """Each metrics page costs 5 ms of vLLM's API server."""
    async with two_engines() as (one, two, router):
        engines = (one.engine, two.engine)
        over = asyncio.Event()

        async def loop() -> None:
            while not over.is_set():
                assert await ask(router, priority=priority) == 200

        clients = [asyncio.ensure_future(loop()) for _ in range(30)]
        await asyncio.sleep(2.0)
        before, began = [engine.scrapes for engine in engines], monotonic()
        busy = []
        while (took_s := monotonic() - began) < 4.0:
            await asyncio.sleep(0.1)
            busy.append(sum(engine.core.running for engine in engines))
        asked = [engine.scrapes - past for engine, past in zip(engines, before, strict=True)]
        over.set()
        await asyncio.gather(*clients)
        assert max(asked) <= 2.5 * took_s + 1, asked
        assert median(busy) >= 7, "and they are kept full"
