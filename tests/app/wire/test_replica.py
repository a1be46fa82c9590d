"""Connections to a replica over real sockets: their ends, and when they may be reused."""

import asyncio
import socket

import pytest

from router.core.errors import Reason
from router.wire.replica import ReplicaConnection
from tests.app.wire.test_pool import Owner, opened, pool_to, taking
from tests.harness.behaviours import json_ok, rst_after_request
from tests.harness.messages import completion, request
from tests.harness.replica import ReplicaConnection as Accepted, eventually
from tests.harness.running import scenario


@scenario
async def test_unsolicited_bytes_end_an_idle_connection() -> None:
    go = asyncio.Event()

    async def behave(connection: Accepted) -> None:
        await connection.recv_request()
        await connection.send(completion())
        await go.wait()
        await connection.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await connection.recv_request()

    async with pool_to(behave) as (pool, _):
        await opened(pool, 1)
        go.set()
        await eventually(lambda: pool.idle == 0, "the end of the connection")
        assert not pool.all
        owner = Owner(pool)
        assert not owner.take()
        await owner.connected()


@scenario
async def test_a_fin_or_a_reset_ends_an_idle_connection() -> None:
    for end in ("close", "rst"):
        go = asyncio.Event()

        async def behave(connection: Accepted, go: asyncio.Event = go, end: str = end) -> None:
            await connection.recv_request()
            await connection.send(completion())
            await go.wait()
            getattr(connection, end)()

        async with pool_to(behave) as (pool, _):
            await opened(pool, 1)
            go.set()
            await eventually(lambda: not pool.all, "the end of the connection")
            assert pool.idle == 0


@scenario
async def test_a_reset_is_told_to_its_owner_once() -> None:
    async with pool_to(rst_after_request) as (pool, _):
        owner = taking(pool)
        await owner.connected()
        owner.send()
        await eventually(lambda: bool(owner.lost), "the loss")
        await asyncio.sleep(0.01)
        assert owner.lost == [Reason.REPLICA_RESET]
        assert not pool.all


@scenario
async def test_nothing_is_heard_after_cancel() -> None:
    go = asyncio.Event()

    async def behave(connection: Accepted) -> None:
        await connection.recv_request()
        go.set()
        assert await connection.expect_close() in ("fin", "rst")

    async with pool_to(behave) as (pool, replica):
        owner = taking(pool)
        conn = await owner.connected()
        owner.send()
        await go.wait()
        conn.cancel()
        assert not pool.all
        await eventually(lambda: replica.connections[0].ended is not None, "the close")
        assert owner.lost == []


@pytest.mark.parametrize(
    ("answer", "idle"),
    [
        (completion() + b"HTTP/1.1 500 Surprise\r\n\r\n", 0),
        (completion("Connection: close"), 0),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + completion(), 1),
    ],
    ids=["more behind it", "it closes", "after an interim one"],
)
@scenario
async def test_which_connections_are_pooled(answer: bytes, idle: int) -> None:
    async def behave(connection: Accepted) -> None:
        while await connection.recv_request():
            await connection.send(answer)

    async with pool_to(behave) as (pool, _):
        await taking(pool).round_trip()
        assert (pool.idle, len(pool.all)) == (idle, idle)


@scenario
async def test_an_answer_before_the_request_was_sent_is_not_pooled() -> None:
    async def behave(connection: Accepted) -> None:
        await connection.recv_head()
        await connection.send(completion())
        await asyncio.Event().wait()

    async with pool_to(behave) as (pool, _):
        owner = taking(pool)
        conn = await owner.connected()
        size = 32 * 1024 * 1024
        head = request("/x", f"Content-Length: {size}", method="POST")
        conn.send(owner, head, [b"x" * size], for_head=False)
        await eventually(lambda: owner.answered, "an answer")
        conn.release()
        assert (pool.idle, len(pool.all)) == (0, 0)


@scenario
async def test_a_paused_connection_is_pooled_reading() -> None:
    async with pool_to(json_ok) as (pool, _):
        owner = taking(pool)
        conn = await owner.connected()
        owner.send()
        await eventually(lambda: owner.answered, "an answer")
        conn.pause(1)
        conn.release()
        again = Owner(pool)
        assert again.take()
        await again.round_trip()


@scenario
async def test_a_large_read_is_the_last_of_its_turn() -> None:
    """Without this limit, one connection could read 8 MB in one turn of the loop, before the
    others.
    """
    size = 8 * 1024 * 1024

    async def behave(connection: Accepted) -> None:
        await connection.recv_request()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, bytes(size))

    loop = asyncio.get_running_loop()
    turn, large, seen = 0, [], 0

    def count() -> None:
        nonlocal turn
        turn += 1
        if seen < size:
            loop.call_soon(count)

    class Reader(Owner):
        def on_data(self, conn: ReplicaConnection) -> None:
            nonlocal seen
            came = sum(map(len, conn.reader.parts))
            conn.reader.parts.clear()
            seen += came
            if came >= 128 * 1024:
                large.append(turn)

    async with pool_to(behave) as (pool, _):
        owner = Reader(pool)
        owner.take()
        conn = await owner.connected()
        loop.call_soon(count)
        conn.send(owner, request("/plain"), [], for_head=False)
        await eventually(lambda: seen == size, "all of it")
        assert len(large) > 4
        assert len(set(large)) == len(large), "two large reads in one turn"
        conn.cancel()
