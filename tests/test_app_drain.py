"""Draining the whole router: running requests may finish, and the others are ended visibly."""

from __future__ import annotations

import asyncio
import json

import pytest

from router.config.model import (
    Drain,
)
from tests.core.under import NEVER_S, serving
from tests.harness.behaviours import hang, json_ok, stream_then_hang
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.reading import error_of
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario


@scenario
async def test_a_drain_lets_streams_finish() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a")))
        await go.wait()
        await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)
        await connection.recv_request()

    async with serving(behave, behave) as under:
        streams = [await under.client() for _ in range(5)]
        for client in streams:
            await client.send(chat(stream=True))
            await client.recv_until(b"data:")
        idle = await under.client()
        await eventually(lambda: len(under.app.parts.front.clients) == 6, "six clients")
        assert (await under.admin("/readyz")).status == 200
        assert (await under.admin("/drain", "POST")).status == 202
        found = await under.admin("/readyz")
        assert (found.status, bytes(found.body)) == (503, b"draining\n")
        await idle.expect_silence_then_close()
        with pytest.raises(OSError):
            await under.client()
        assert not under.app.drained.is_set()
        assert (await under.admin("/livez")).status == 200
        go.set()
        for client in streams:
            whole = await client.recv_response()
            assert whole.complete
            assert whole.events()[-1] == "[DONE]"
            assert await client.expect_close() == "fin"
            client.close()
        idle.close()
        await under.app.drained.wait()
        assert under.busy() == {}


@scenario
async def test_a_lame_duck_still_serves() -> None:
    async with serving(json_ok, drain=Drain(lame_duck_s=0.3, grace_s=1.0)) as under:
        kept = await under.client()
        await kept.send(chat())
        assert (await kept.recv_response()).header("connection") is None
        under.app.drain()
        under.app.drain()
        assert not under.app.ready()[0]
        assert (await under.ask()).status == 200
        await kept.send(chat())
        assert (await kept.recv_response()).status == 200
        await kept.expect_silence_then_close()
        kept.close()
        await under.app.drained.wait()


@scenario
async def test_a_response_during_a_drain_says_that_it_is_the_last() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        await connection.recv_request()

    async with serving(behave) as under:
        client = await under.client()
        await client.send(chat())
        await under.replicas[0].wait_for_requests(1)
        under.app.drain()
        await eventually(lambda: under.app.parts.front.draining, "the drain")
        go.set()
        found = await client.recv_response()
        assert (found.status, found.header("connection")) == (200, "close")
        await client.expect_close()
        client.close()
        await under.app.drained.wait()


@scenario
async def test_after_the_grace_a_stream_ends_with_an_error_event() -> None:
    drain = Drain(lame_duck_s=0.0, grace_s=0.05)
    async with serving(stream_then_hang(token("a")), drain=drain) as under:
        client = await under.client()
        await client.send(chat(stream=True))
        await client.recv_until(b"data:")
        under.app.drain()
        await under.app.drained.wait()
        await under.app.stop()
        found = await client.recv_response()
        assert not found.complete
        assert error_of(json.loads(found.events()[-1]))["code"] == "draining"
        client.close()


@scenario
async def test_a_stop_during_a_drain_is_at_once() -> None:
    drain = Drain(lame_duck_s=0.0, grace_s=NEVER_S)
    async with serving(hang, drain=drain) as under:
        client = await under.client()
        await client.send(chat())
        await under.replicas[0].wait_for_requests(1)
        under.app.drain()
        await eventually(lambda: under.app.parts.front.draining, "the drain")
        await under.app.stop()
        found = await client.recv_response()
        assert (found.status, found.error()["code"]) == (503, "draining")
        client.close()
