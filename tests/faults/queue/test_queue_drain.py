"""SIGTERM while requests wait: they are served during the grace period, then refused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from router.core.errors import Reason
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.queueing import Turnstile
from tests.harness.replica import HostileReplica
from tests.harness.running import assert_error, assert_error_event, scenario

QUEUE = "queue: {enabled: true, policy: fifo}\n"


@asynccontextmanager
async def draining(
    tmp_path: Path, turnstile: Turnstile, drain: str, extra: str = ""
) -> AsyncIterator[RouterProcess]:
    """A router process in front of one replica that takes one request at a time."""
    hostile = HostileReplica(turnstile)
    hostile.start()
    config = tmp_path / "config.yaml"
    extra = f"{QUEUE}drain: {{{drain}}}\n{extra}"
    write_config(config, hostile.url, each="max_inflight: 1", extra=extra)
    try:
        async with serving(config) as router:
            yield router
    finally:
        await hostile.stop()


async def waiting(router: RouterProcess) -> int:
    client = await router.client(admin=True)
    await client.send(request("/queue", "Connection: close"))
    told = (await client.recv_response()).json()
    client.close()
    return int(told["waiting"])


async def crowd(router: RouterProcess, count: int, **body: object) -> list[RawClient]:
    """Send `count` further requests, and return once they wait."""
    before = await waiting(router)
    clients = [await router.client() for _ in range(count)]
    for number, client in enumerate(clients):
        await client.send(chat(tag=str(number), **body))  # type: ignore[arg-type]
    while await waiting(router) < before + count:
        await asyncio.sleep(0.01)
    return clients


async def first_of(router: RouterProcess, turnstile: Turnstile) -> RawClient:
    """The request that keeps the replica busy."""
    client = await router.client()
    await client.send(chat(tag="first"))
    while not turnstile.tags:
        await asyncio.sleep(0.01)
    return client


async def is_refused(router: RouterProcess) -> bool:
    try:
        (await router.client()).close()
    except OSError:
        return True
    return False


@scenario
async def test_waiting_requests_are_served_within_the_grace_time(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with draining(tmp_path, turnstile, "lame_duck: 2, grace: 60") as router:
        clients = [await first_of(router, turnstile), *await crowd(router, 20)]
        clients += await crowd(router, 20, stream=True)
        router.signal(signal.SIGTERM)
        await router.next_event("draining")
        clients += await crowd(router, 5)  # the port still accepts, and so does the queue
        while not await is_refused(router):
            await asyncio.sleep(0.02)
        assert await waiting(router) == 45
        turnstile.open(46)
        for client in clients:
            answer = await client.recv_response()
            assert (answer.status, answer.complete) == (200, True)
            await client.expect_close()
            client.close()
        assert await router.exit_status() == 0
        assert len(turnstile.tags) == 46


@scenario
async def test_requests_waiting_at_its_end_get_503_with_retry_after(tmp_path: Path) -> None:
    turnstile = Turnstile()
    timeouts = "timeouts: {commit_after: 0.1}\n"
    drain = "lame_duck: 0, grace: 1"
    async with draining(tmp_path, turnstile, drain, timeouts) as router:
        first = await first_of(router, turnstile)
        whole = await crowd(router, 200)
        streams = await crowd(router, 50, stream=True)
        for client in streams:
            await client.recv_until(b": waiting")
        router.signal(signal.SIGTERM)
        for client in (first, *whole):
            answer = await client.recv_response()
            assert_error(answer, Reason.DRAINING, 503)
            assert int(answer.header("retry-after") or 0) >= 1
            assert answer.header("connection") == "close"
        for client in streams:
            client.received[:0] = b""
            assert_error_event(await client.recv_response(), Reason.DRAINING)
        assert await router.exit_status() == 0
        assert turnstile.tags == ["first"]
        for client in (first, *whole, *streams):
            client.close()


@scenario
async def test_the_drain_does_not_wait_for_cancelled_requests(tmp_path: Path) -> None:
    turnstile = Turnstile()
    async with draining(tmp_path, turnstile, "lame_duck: 0, grace: 600") as router:
        first = await first_of(router, turnstile)
        clients = await crowd(router, 20)
        router.signal(signal.SIGTERM)
        await router.next_event("draining")
        for client in clients:
            client.close()
        while await waiting(router):
            await asyncio.sleep(0.01)
        turnstile.open(21)
        assert (await first.recv_response()).status == 200
        first.close()
        assert await router.exit_status() == 0
        assert turnstile.tags == ["first"]
