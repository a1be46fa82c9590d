"""Bytes on an idle pooled connection are never used as the next request's answer."""

import asyncio

import pytest

from tests.harness.behaviours import in_turn, json_ok
from tests.harness.messages import chat, completion, json_response
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import running, scenario

POISON = json_response({"poison": True})
TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def serves_then_sends(data: bytes, sent: asyncio.Event, *, together: bool) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        if together:
            await connection.send(completion(), data)
        else:
            await connection.send(completion())
            await connection.send(data)
        sent.set()
        await connection.expect_close()

    return behave


@pytest.mark.parametrize("data", [POISON, TIMEOUT, b"\x15\x03\x01\x00\x02\x02", b"\r\n"])
@pytest.mark.parametrize("together", [True, False])
@scenario
async def test_it_is_closed_and_never_parsed(data: bytes, together: bool) -> None:
    sent = asyncio.Event()
    behave = in_turn(serves_then_sends(data, sent, together=together), then=json_ok)
    async with running(behave) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(chat())
            answer = await client.recv_response()
            assert answer.status == 200
            assert answer.json()["id"] == "chatcmpl-1"
            await sent.wait()
        assert len(router.replica.sessions) == 2
        assert {line["reason"] for line in await router.log(2)} == {"ok"}


@scenario
async def test_bytes_that_the_loop_has_not_read_yet() -> None:
    """The bytes arrive in the same turn of the event loop in which the connection is reused."""

    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        late.append(connection)
        await connection.expect_close()

    late: list[ReplicaConnection] = []
    async with running(
        in_turn(behave, then=json_ok), quiet_control_plane="one connection"
    ) as router:
        client = await router.send(chat())
        assert (await client.recv_response()).status == 200
        (pool,) = [r.pool for r in router.app.parts.fleet.replicas.values()]
        (conn,) = pool._idle
        late[0].sock.sendall(POISON)
        assert conn.has_news()
        client.sock.sendall(chat())
        answer = await client.recv_response()
        assert answer.json()["id"] == "chatcmpl-1"
