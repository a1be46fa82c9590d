"""A client that disconnects: its replica connection is closed, too (see `test_positions.py`)."""

import asyncio

import pytest

from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.cases import Case
from tests.harness.client import RawClient
from tests.harness.messages import SSE_HEAD, chat, chunk, request, role, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, routed, running, scenario

WAYS = pytest.mark.parametrize("way", ["fin", "rst"])


@WAYS
@scenario
async def test_on_a_path_that_is_not_inference(way: str) -> None:
    def leaves(_: Router, client: RawClient) -> None:
        client.close() if way == "fin" else client.rst()

    row = Case(
        replicas=(hang,),
        asked=request("/plain"),
        then=leaves,
        status=0,
        reason="client_gone",
        closes=True,
    )
    await row.check(way)


@WAYS
@scenario
async def test_while_its_bytes_are_held_back(way: str) -> None:
    """The disconnect must be noticed although the client does not read."""

    async def floods(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        piece = chunk(token("x" * 4000))
        while True:
            await connection.send(piece)
            await asyncio.sleep(0)

    async with running(floods) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(chat(stream=True))
        await client.recv_until(b"xxx")
        await eventually(lambda: router.busy().get("held_bytes", 1) > 0, "bytes held")
        if way == "fin":
            client.close()  # with unread bytes, `close` sends a reset, as for a killed process
        else:
            client.rst()
        await router.quiet()
        assert await router.reason() in ("client_gone", "write_timeout")


@routed(stream_then_hang(role(), token("a")))
async def test_other_requests_are_not_affected(router: Router) -> None:
    stays, leaves = await router.client(), await router.client()
    for client in (stays, leaves):
        await client.send(chat(stream=True))
        await client.recv_until(b'"a"')
    leaves.rst()
    assert await router.reason() == "client_gone"
    assert router.busy()["leases"] == 1
    assert stays.ended is None
