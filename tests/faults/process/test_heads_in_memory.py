"""Unfinished heads and data that clients send early count among the bytes that requests hold."""

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.queueing import Turnstile
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, routed, running, scenario

LIMITS = {"body": 1024, "bodies_total": 150_000}
LINES = b"x-a: b\r\n" * 7500  # 60 KB
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n" + LINES


def held(router: Router) -> int:
    return router.app.parts.front.held_bytes


async def fill(router: Router, data: bytes) -> list[RawClient]:
    """Let two clients send the data; a third has no room."""
    clients = [await router.client() for _ in range(2)]
    for number, client in enumerate(clients, 1):
        await client.send(data)
        await eventually(lambda number=number: held(router) >= number * len(LINES), "held")  # type: ignore[misc]
    return clients


@routed(json_ok, limits=LIMITS)
async def test_unfinished_heads(router: Router) -> None:
    clients = await fill(router, HEAD)
    assert_error(await router.ask(HEAD), Reason.MEMORY_LIMIT)
    assert held(router) < LIMITS["bodies_total"]
    assert (await router.ask()).status == 200
    await clients[0].send(b"\r\n")
    assert (await clients[0].recv_response("POST")).status == 431  # too many fields
    clients[1].close()
    await eventually(lambda: held(router) == 0, "nothing is held")


@scenario
async def test_data_behind_a_request() -> None:
    turnstile = Turnstile()
    async with running(turnstile, limits=LIMITS) as router:
        clients = await fill(router, chat() + HEAD)
        third = await router.send(chat() + HEAD)
        await third.expect_close()
        turnstile.open(3)
        for client in clients:
            assert (await client.recv_response("POST")).status == 200
            client.close()
        await eventually(lambda: held(router) == 0, "nothing is held")


@routed(json_ok, limits=LIMITS)
async def test_a_request_that_is_pipelined_is_served(router: Router) -> None:
    client = await router.send(chat() * 40)
    for _ in range(40):
        assert (await client.recv_response("POST")).status == 200
    assert held(router) == 0
