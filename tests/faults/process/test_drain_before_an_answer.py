"""A drain while a request has no answer yet: it gets one, or 503 and a close, within the grace
period.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.connections.test_connect_is_dropped import once_well
from tests.harness.behaviours import hang, json_ok
from tests.harness.listeners import blackhole
from tests.harness.messages import (
    chat,
)
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, eventually
from tests.harness.running import Router, assert_error, assert_error_event, running, scenario

LONG, SHORT = {"grace_s": 60.0}, {"grace_s": 0.2}
PATIENT = {"connect_s": 60.0, "first_token_s": 60.0}


async def drains(router: Router) -> None:
    """Begin a drain, and wait until the data port no longer accepts."""
    router.app.drain()
    await eventually(lambda: router.app.parts.front.draining, "the drain")
    with pytest.raises(OSError):
        await router.client()


async def passes(router: Router) -> None:
    """Drain for the grace period, and stop."""
    await drains(router)
    await router.app.draining.done.wait()
    await router.app.stop()


def assert_refused(answer: Response) -> None:
    assert_error(answer, Reason.DRAINING, 503)
    assert answer.header("retry-after")
    assert answer.header("connection") == "close"


@asynccontextmanager
async def asked(
    *behaviours: Behaviour | str, data: tuple[bytes, ...], **config: Any
) -> AsyncIterator[tuple[Router, list[Any]]]:
    """A router that has these requests, and their clients."""
    async with running(*behaviours, health={"slow_start_s": 0.0}, **config) as router:
        once_well(router)
        clients = [await router.client() for _ in data]
        for client, sent in zip(clients, data, strict=True):
            await client.send(sent)
        exchanges = router.app.parts.dispatcher.exchanges
        await eventually(lambda: len(exchanges) + len(router.lines()) >= len(data), "the requests")
        yield router, clients
        await router.app.draining.done.wait()


@scenario
async def test_it_has_its_200_and_comments_only() -> None:
    timeouts = {"commit_after_s": 0.1, "first_token_s": 60.0}
    data = (chat(stream=True),)
    async with asked(hang, data=data, drain=SHORT, timeouts=timeouts) as (router, (client,)):
        await router.answers_early()
        await passes(router)
        assert_error_event(await client.recv_response(), Reason.DRAINING)
        await client.expect_close()


@scenario
async def test_its_connect_is_refused_in_time() -> None:
    """Connecting and retrying continue after the drain has begun."""
    data, rules = (chat(), chat()), {"timeouts": {"connect_s": 0.5}, "policy": "round_robin"}
    with blackhole() as dark:
        async with asked(dark, json_ok, data=data, drain=LONG, **rules) as (router, clients):
            await drains(router)
            for client in clients:
                assert (await client.recv_response()).status == 200
            assert len(router.replica.requests) == 2


@scenario
async def test_its_connect_never_ends() -> None:
    data = (chat(), chat(stream=True))
    with blackhole() as dark:
        async with asked(dark, data=data, drain=SHORT, timeouts=PATIENT) as (router, clients):
            await passes(router)
            for client in clients:
                assert_refused(await client.recv_response())
                await client.expect_silence_then_close()


@pytest.mark.parametrize("where", ["connecting", "first token"])
@scenario
async def test_a_stop_does_not_wait(where: str) -> None:
    with blackhole() if where == "connecting" else nullcontext(hang) as replica:
        drain = {"grace_s": 600.0}
        async with asked(replica, data=(chat(),), drain=drain, timeouts=PATIENT) as (
            router,
            (one,),
        ):
            await drains(router)
            assert one.ended is None
            await router.app.stop()
            assert_error(await one.recv_response(), Reason.DRAINING, 503)
            await router.app.draining.done.wait()
