"""An event of many megabytes without a line end is streamed; no scanner buffers it."""

from tests.harness.behaviours import until_closed
from tests.harness.messages import LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

PIECE = b"x" * (256 * 1024)
PIECES = 200  # 50 MB in total
ENDLESS = 128 * 1024 * 1024
TAKEN = 16 * 1024 * 1024  # bytes that the router may hold, plus loopback's socket buffers


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
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert len(answer.body) == len(token("a")) + 6 + PIECES * len(PIECE) + 2


@scenario
async def test_as_the_first_event() -> None:
    """Bytes held before the commit are limited: then the response is relayed, or refused."""

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal sent
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(b'data: {"x": "'))
        while sent < ENDLESS:
            await connection.send(chunk(PIECE))
            sent += len(PIECE)
        await until_closed(connection)

    sent = 0
    async with running(behave) as router:
        client = await router.send(chat(stream=True))
        assert await client.fill()
        taken = sent  # sent at or shortly after the answer's first byte
        assert client.received.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 502 "))
        assert taken <= TAKEN, f"{taken} bytes were taken before a byte was relayed"
