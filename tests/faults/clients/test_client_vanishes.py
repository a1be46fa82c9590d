"""A client that disconnects at any time: its replica connection is closed, too."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import SSE_HEAD, chat, chunk, request, role, token
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import running, scenario

WAYS = pytest.mark.parametrize("way", ["fin", "rst"])


@WAYS
@pytest.mark.parametrize(
    ("behave", "asked", "seen"),
    [
        (hang, chat(), b""),
        (hang, chat(stream=True), b""),
        (stream_then_hang(role()), chat(stream=True), b""),
        (stream_then_hang(role(), token("a")), chat(stream=True), b'"a"'),
        (hang, request("/plain"), b""),
    ],
    ids=["json", "before headers", "before the first token", "mid-stream", "other path"],
)
@scenario
async def test_the_replicas_connection_is_closed_at_once(
    behave: Behaviour, asked: bytes, seen: bytes, way: str
) -> None:
    async with running(behave) as router:
        client = await router.send(asked)
        await router.replica.wait_for_requests(1)
        if seen:
            await client.recv_until(seen)
        if way == "fin":
            client.close()
        else:
            client.rst()
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        assert await router.reason() == "client_gone"
        assert router.lines()[0]["status"] == 499
        await router.quiet()


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


@scenario
async def test_other_requests_are_not_affected() -> None:
    async with running(stream_then_hang(role(), token("a"))) as router:
        stays, leaves = await router.client(), await router.client()
        for client in (stays, leaves):
            await client.send(chat(stream=True))
            await client.recv_until(b'"a"')
        leaves.rst()
        assert await router.reason() == "client_gone"
        assert router.busy()["leases"] == 1
        assert stays.ended is None
