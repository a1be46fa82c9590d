"""A drain while requests wait: they are served during the grace period, then refused."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.errors import Reason
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, queue, send, waiting
from tests.harness.replica import eventually
from tests.harness.running import (
    Router,
    assert_error,
    assert_error_event,
    running,
    virtual_scenario,
)

QUEUED: dict[str, Any] = {"replica": ONE, "queue": queue(policy="fifo")}


async def crowd(router: Router, count: int, **body: Any) -> list[RawClient]:
    """Send `count` further requests, and return once they wait."""
    before = waiting(router)
    clients = [await router.client() for _ in range(count)]
    for number, client in enumerate(clients):
        await client.send(chat(tag=str(number), **body))
    await eventually(lambda: waiting(router) == before + count, "they wait")
    return clients


async def refuses(router: Router) -> None:
    """Wait until the data port no longer accepts."""
    await eventually(lambda: router.app.parts.front.draining, "the end of the lame duck")
    with pytest.raises(OSError):
        await router.client()


@virtual_scenario
async def test_waiting_requests_are_served_within_the_grace_time() -> None:
    turnstile = Turnstile()
    drain = {"lame_duck_s": 2.0, "grace_s": 60.0}
    async with running(turnstile, drain=drain, **QUEUED) as router:
        clients = [await send(router, "first", queued=False), *await crowd(router, 20)]
        clients += await crowd(router, 20, stream=True)
        router.app.drain()
        clients += await crowd(router, 5)  # the port still accepts, and so does the queue
        await refuses(router)
        assert waiting(router) == 45
        turnstile.open(46)
        for client in clients:
            answer = await client.recv_response()
            assert (answer.status, answer.complete) == (200, True)
            await client.expect_close()
        await router.app.draining.done.wait()
        assert len(turnstile.tags) == 46


@virtual_scenario
async def test_requests_waiting_at_its_end_get_503_with_retry_after() -> None:
    turnstile = Turnstile()
    rules: dict[str, Any] = {"drain": {"grace_s": 0.5}, "timeouts": {"commit_after_s": 0.1}}
    async with running(turnstile, **rules, **QUEUED) as router:
        first = await send(router, "first", queued=False)
        whole = await crowd(router, 200)
        streams = await crowd(router, 50, stream=True)
        for client in streams:
            await client.recv_until(b": waiting")
        router.app.drain()
        await router.app.draining.done.wait()
        await router.app.stop()
        for client in (first, *whole):
            answer = await client.recv_response()
            assert_error(answer, Reason.DRAINING, 503)
            assert int(answer.header("retry-after") or 0) >= 1
            assert answer.header("connection") == "close"
        for client in streams:
            client.received[:0] = b""
            assert_error_event(await client.recv_response(), Reason.DRAINING)
        assert turnstile.tags == ["first"]


@virtual_scenario
async def test_the_drain_does_not_wait_for_cancelled_requests() -> None:
    turnstile = Turnstile()
    async with running(turnstile, drain={"grace_s": 600.0}, **QUEUED) as router:
        first = await send(router, "first", queued=False)
        clients = await crowd(router, 20)
        router.app.drain()
        await refuses(router)
        for client in clients:
            client.close()
        await eventually(lambda: waiting(router) == 0, "they are forgotten")
        turnstile.open(21)
        assert (await first.recv_response()).status == 200
        first.close()
        await router.app.draining.done.wait()
        assert turnstile.tags == ["first"]
