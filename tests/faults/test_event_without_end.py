"""An event of many megabytes and no line end is streamed; no scanner keeps it."""

from __future__ import annotations

from tests.harness.behaviours import until_closed
from tests.harness.messages import LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

PIECE = b"x" * (256 * 1024)
PIECES = 200  # 50 MB


@scenario
async def test_after_the_first_token() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a")), chunk(b"data: "))
        for _ in range(PIECES):
            await connection.send(chunk(PIECE))
        await connection.send(chunk(b"\n\n"), LAST_CHUNK)
        await until_closed(connection)

    async with running(behave) as router:
        client = await router.client()
        await client.send(chat(stream=True))
        answer = await client.recv_response()
        assert answer.complete
        assert len(answer.body) == len(token("a")) + 6 + PIECES * len(PIECE) + 2


@scenario
async def test_as_the_first_event() -> None:
    """What may be held before the commit is capped: then it is relayed, or refused."""

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(b'data: {"x": "'))
        for _ in range(20):
            await connection.send(chunk(PIECE))
        await connection.send(LAST_CHUNK)
        await until_closed(connection)

    most = 0
    async with running(behave) as router:
        client = await router.client()
        await client.send(chat(stream=True))
        while await client.fill():
            most = max(most, router.app.census()["held_bytes"])
            if client.received.endswith((LAST_CHUNK, b"}")):
                break
        answer = await client.recv_response()
        assert answer.status in (200, 502)
        assert most <= 2 * 1024 * 1024
