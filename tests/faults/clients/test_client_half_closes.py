"""A FIN after a whole request: by default a disconnect; tolerated if the configuration says so."""

import asyncio

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import completion, request
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, routed, running, scenario


@scenario
async def test_by_default_a_half_close_is_a_disconnect() -> None:
    async def waits(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.expect_close()

    async with running(waits) as router:
        client = await router.send(request("/plain"))
        await router.replica.wait_for_requests(1)
        client.fin()
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        await client.expect_silence_then_close()
        assert await router.reason() == "client_gone"


@scenario
async def test_where_allowed_the_answer_still_comes() -> None:
    go = asyncio.Event()

    async def waits(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(completion())
        await connection.expect_close()

    async with running(waits, allow_half_close=True) as router:
        client = await router.send(request("/plain"))
        client.fin()
        await router.replica.wait_for_requests(1)
        go.set()
        assert (await client.recv_response()).status == 200
        assert await client.expect_close()
        assert await router.reason() == "ok"


@routed(echo, allow_half_close=True)
async def test_where_allowed_pipelined_requests_are_all_answered(router: Router) -> None:
    client = await router.send(*(request(f"/{index}") for index in range(5)))
    client.fin()
    for index in range(5):
        assert (await client.recv_response()).json()["target"] == f"/{index}"
    assert await client.expect_close()


@pytest.mark.parametrize("allowed", [False, True])
@scenario
async def test_a_half_close_before_the_end_of_the_request_ends_it(allowed: bool) -> None:
    async with running(echo, allow_half_close=allowed) as router:
        client = await router.send(request("/plain", method="POST", body=b"hello")[:-1])
        client.fin()
        await client.expect_close()
        assert client.received == b"" or client.received.startswith(b"HTTP/1.1 400 ")
        assert not router.replica.requests


@routed(echo)
async def test_an_idle_connection_is_closed_quietly(router: Router) -> None:
    client = await router.send(request("/plain"))
    assert (await client.recv_response()).status == 200
    client.fin()
    await client.expect_silence_then_close()
    assert len(await router.log()) == 1
