"""The time since a streaming client's last content, by class in /metrics, without counters."""

import asyncio
from time import monotonic

from router.app.families import silence_by_class as by_class
from router.config.model import Queue
from router.core.urgency import CLASSES
from tests.app.pages import samples
from tests.harness.behaviours import hang, until_closed
from tests.harness.messages import SSE_HEAD, chat, chunk, role, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

NOBODY = dict.fromkeys(CLASSES, 0.0)
AHEAD_S = 1000.0  # seconds by which the clock is moved ahead


def silences(router: Router, ahead_s: float = 0.0) -> dict[str, float]:
    return by_class(router.app.parts.dispatcher.exchanges, monotonic() + ahead_s)


@scenario
async def test_a_stream_that_waits_for_its_first_token_is_silent_since_its_arrival() -> None:
    async with running(hang, timeouts={"commit_after_s": 0.05}) as router:
        assert silences(router) == NOBODY
        client = await router.client()
        before = monotonic()
        await client.send(chat(stream=True, priority="high"))
        # Comments keep the client's connection open but carry no content.
        await client.recv_until(b": waiting")
        waited_s = monotonic() - before
        high = silences(router, AHEAD_S)["high"]
        assert AHEAD_S < high <= AHEAD_S + (monotonic() - before)
        assert waited_s >= 0.05
        assert high > AHEAD_S + 0.05 - 0.01
        assert {**silences(router), "high": 0.0} == NOBODY
        found = await samples(router, "hedgerow_stream_silence_seconds", "class")
        assert found.keys() == set(CLASSES)
        assert 0.05 - 0.01 < found.pop("high") <= monotonic() - before
        assert set(found.values()) == {0.0}


@scenario
async def test_silence_ends_with_content_and_begins_again() -> None:
    go = asyncio.Event()

    async def speaks(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(role()), chunk(token("first")))
        await go.wait()
        await connection.send(chunk(token("second")))
        await until_closed(connection)

    async with running(speaks) as router:
        client = await router.client()
        await client.send(chat(stream=True))
        await client.recv_until(b"first")
        (x,) = router.app.parts.dispatcher.exchanges
        first = x.last_content_at()
        assert x.arrived < first <= monotonic()
        await asyncio.sleep(0.02)
        assert x.last_content_at() == first
        go.set()
        await client.recv_until(b"second")
        assert first + 0.01 < x.last_content_at() <= monotonic()


@scenario
async def test_one_that_waits_in_the_queue_is_silent_too() -> None:
    rules = Queue(enabled=True)
    async with running(hang, replica={"max_inflight": 1}, queue=rules) as router:

        def under_way() -> int:
            return len(router.app.parts.dispatcher.exchanges)

        for count, priority in enumerate(("low", "high"), 1):
            client = await router.client()
            await client.send(chat(stream=True, priority=priority))
            await eventually(lambda n=count: under_way() == n, "it is there")  # type: ignore[misc]
        assert router.app.census()["queued"] == 1
        assert silences(router, AHEAD_S)["high"] > AHEAD_S


@scenario
async def test_unstreamed_requests_are_not_silent() -> None:
    async with running(hang) as router:
        client = await router.client()
        await client.send(chat())
        await eventually(lambda: bool(router.replica.requests), "it is there")
        assert silences(router, AHEAD_S) == NOBODY


@scenario
async def test_a_client_that_stops_reading_is_left_out() -> None:
    async def floods(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        piece = chunk(token("x" * 16_000))
        loop = asyncio.get_running_loop()
        try:
            while True:
                await loop.sock_sendall(connection.sock, piece)
        except OSError:
            pass  # the router has closed it, as expected

    async with running(floods) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(chat(stream=True, priority="high"))
        await client.recv_until(b"xxx")
        await eventually(lambda: silences(router, AHEAD_S) == NOBODY, "it is held up")
