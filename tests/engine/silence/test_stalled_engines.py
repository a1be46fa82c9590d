"""An engine whose core stands still is ejected, and its requests move; one that works stays up.

A stopped core is a zombie: its API server answers /health, accepts requests and sends heads. Its
totals stand still. The shipped times apply: suspect after 5 s without a sign of work.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Kind
from tests.engine.loads import bodies, sse
from tests.engine.loads.load import CHAT
from tests.engine.machine.cores import stopped
from tests.engine.machine.favourite import preferring
from tests.engine.machine.fleet import CONTEXT_TOKENS, Engines, Hedgerow, configured
from tests.engine.machine.late_health import late_health
from tests.engine.machine.processes import eventually

WITHIN_S = 90.0
REQUESTS = 3  # The retry budget of a small fleet is three retries at once.
NO_COPY = {"x-hedge": "off"}
MOST = CONTEXT_TOKENS - 200  # output tokens of the longest answer
LONG_S = 15.0  # three times as long as the time without a sign of work


@pytest.fixture
def router(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    """A Hedgerow that sends to the first engine as long as it is fit."""
    with preferring(*engines, tmp_path) as router:
        yield router


def ask(url: str, stream: bool, number: int = 0, tokens: int = 5) -> httpx.Response:
    body = {**bodies.chat(f"question {number} at {time.monotonic_ns()}", tokens), "stream": stream}
    return httpx.post(f"{url}{CHAT}", json=body, headers=NO_COPY, timeout=WITHIN_S)


@pytest.fixture(scope="module")
def long(fleet: Engines) -> int:
    """Output tokens of an answer for which an engine of this machine needs `LONG_S`."""
    engine, _ = fleet
    engine.wait_until_ready()
    began = time.monotonic()
    assert is_whole(ask(engine.url, False, tokens=200), False)
    return min(MOST, int(200 * LONG_S / (time.monotonic() - began)))


def is_whole(answer: httpx.Response, stream: bool) -> bool:
    if answer.status_code != 200:
        return False
    return not stream or sse.events(answer.content)[-1] == sse.DONE


def replica(router: Hedgerow, id: str) -> dict[str, Any]:
    found = httpx.get(f"{router.admin}/replicas", timeout=10.0).json()
    entries = found["replicas"] if isinstance(found, dict) else found
    (entry,) = [one for one in entries if one["id"] == id]
    return dict(entry)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_requests_of_a_stopped_engine_are_answered_by_the_other(
    engines: Engines, router: Hedgerow, stream: bool
) -> None:
    zombie, saviour = engines
    for number in range(3):  # The router learns the usual times.
        assert is_whole(ask(router.url, stream, number), stream)
    zombie.wait_until_idle(WITHIN_S)
    time.sleep(2.0)  # The metrics of these requests are read.
    before = len(router.records())
    with stopped(zombie), ThreadPoolExecutor(REQUESTS) as clients:
        asked = [clients.submit(ask, router.url, stream, n) for n in range(REQUESTS)]
        answers = [one.result(WITHIN_S) for one in asked]
        assert [is_whole(one, stream) for one in answers] == [True] * REQUESTS
        assert replica(router, zombie.name)["breaker"] in ("open", "half_open")
    eventually(lambda: zombie.state().is_idle, WITHIN_S, lambda: f"gone: {zombie.state()}")
    eventually(
        lambda: len(router.records()) >= before + REQUESTS,
        WITHIN_S,
        lambda: f"logged: {router.records()}",
    )
    tried = [[attempt[:3] for attempt in one["attempts"]] for one in router.records()[before:]]
    moved = [
        [zombie.name, Kind.PRIMARY, Reason.REPLICA_STALLED],
        [saviour.name, Kind.RETRY, Reason.OK],
    ]
    assert moved in tried, tried
    assert all(one in (moved, [[saviour.name, Kind.PRIMARY, Reason.OK]]) for one in tried), tried
    print([f"{one['total_ms']:.0f} ms" for one in router.records()[before:] if "total_ms" in one])
    eventually(
        lambda: (
            is_whole(ask(router.url, stream), stream)
            and replica(router, zombie.name)["breaker"] == "closed"
        ),
        WITHIN_S,
        "the engine is used again",
    )


def test_a_long_whole_answer_of_a_working_engine_never_counts(
    engines: Engines, router: Hedgerow, long: int
) -> None:
    favourite, _ = engines
    for number in range(3):  # Its usual times are short.
        assert is_whole(ask(router.url, False, number), False)
    with ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(ask, router.url, False, n, long) for n in range(2)]
        while not all(one.done() for one in asked):
            assert replica(router, favourite.name)["breaker"] == "closed"
            time.sleep(0.5)
        assert all(is_whole(one.result(), False) for one in asked)
    eventually(lambda: len(router.records()) == 5, WITHIN_S, lambda: f"{router.records()}")
    took = [record["attempts"] for record in router.records()[3:]]
    assert [[attempt[:3] for attempt in one] for one in took] == [
        [[favourite.name, Kind.PRIMARY, Reason.OK]]
    ] * 2


def test_a_working_engine_with_a_late_health_path_stays_up(
    engines: Engines, tmp_path: Path, long: int
) -> None:
    """Three streams run; each of the probes takes the whole timeout."""
    engine, _ = engines
    with late_health(engine.port) as (port, is_late):
        config = {
            "replicas": [{"url": f"http://127.0.0.1:{port}", "id": "late", "models": ["tiny"]}],
            "health": {"timeout": 1.0, "interval": 1.0},
        }
        with configured(config, tmp_path) as router, ThreadPoolExecutor(3) as clients:
            asked = [clients.submit(ask, router.url, True, n, long) for n in range(3)]
            is_late.set()
            probes = 0
            while not any(one.done() for one in asked):
                assert replica(router, "late")["state"] == "ready"
                assert is_whole(ask(router.url, False, probes), False)
                probes += 1
            assert probes > 3
            assert all(is_whole(one.result(WITHIN_S), True) for one in asked)
            # Without work, late answers take it down.
            eventually(lambda: replica(router, "late")["state"] == "down", WITHIN_S, "down")


def test_streams_that_all_clients_have_cut_leave_no_load(engines: Engines, tmp_path: Path) -> None:
    """The engine takes no step after that, so its gauges may keep the cut streams."""
    engine, _ = engines
    config = {"replicas": [{"url": engine.url, "id": "cut"}]}

    async def cut(url: str) -> None:
        async with httpx.AsyncClient(timeout=WITHIN_S) as http:

            async def one(number: int) -> None:
                body = {**bodies.chat(f"story {number}", MOST), "stream": True}
                async with http.stream("POST", f"{url}{CHAT}", json=body) as answer:
                    async for piece in answer.aiter_bytes():
                        if b'"content"' in piece:
                            return

            await asyncio.gather(*(one(number) for number in range(6)))

    with configured(config, tmp_path) as router:
        asyncio.run(cut(router.url))
        for number in range(4):
            answer = httpx.post(
                f"{router.url}{CHAT}",
                json=bodies.chat(f"after {number}", 5),
                headers={"x-priority": "batch"},
                timeout=WITHIN_S,
            )
            assert answer.status_code == 200
