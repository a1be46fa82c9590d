"""A TLS client that disconnects in any way: its replica connection is closed, too."""

import asyncio

import pytest

from router.config.model import Tls
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import SSE_HEAD, chat, chunk, role, token
from tests.harness.over_tls import TlsClient
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import running, scenario
from tests.places import CERT, KEY

LISTENING = Tls(cert=CERT, key=KEY)
WAYS = pytest.mark.parametrize("way", ["goodbye", "fin", "rst"])


async def leave(client: TlsClient, way: str) -> None:
    if way == "goodbye":
        await client.goodbye()
    elif way == "fin":
        client.close()
    else:
        client.rst()


@WAYS
@pytest.mark.parametrize(
    ("behave", "stream", "seen"),
    [
        (hang, False, b""),
        (stream_then_hang(role()), True, b""),
        (stream_then_hang(role(), token("a")), True, b'"a"'),
    ],
    ids=["json", "before the first token", "mid-stream"],
)
@scenario
async def test_the_replicas_connection_is_closed(
    behave: Behaviour, stream: bool, seen: bytes, way: str
) -> None:
    async with running(behave, tls=LISTENING) as router:
        client = await TlsClient.connect(router.port)
        router.clients.append(client)
        await client.send(chat(stream=stream))
        await router.replica.wait_for_requests(1)
        if seen:
            await client.recv_until(seen)
        await leave(client, way)
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        assert await router.reason() == "client_gone"
        assert router.lines()[0]["status"] == 499
        await router.quiet()


@WAYS
@scenario
async def test_while_its_bytes_are_held_back(way: str) -> None:
    """Encrypted bytes have their own buffers, which must neither hide a disconnect nor grow."""

    class Flood:
        sent = 0

        async def __call__(self, connection: ReplicaConnection) -> None:
            await connection.recv_request()
            await connection.send(SSE_HEAD)
            piece = chunk(token("x" * 16_000))
            loop = asyncio.get_running_loop()
            while self.sent < 64 * 1024 * 1024:
                await loop.sock_sendall(connection.sock, piece)
                self.sent += len(piece)

    flood = Flood()
    async with running(flood, tls=LISTENING) as router:
        client = await TlsClient.connect(router.port, receive_buffer=4096)
        router.clients.append(client)
        await client.send(chat(stream=True))
        await client.recv_until(b"xxx")
        before = -1
        while before != flood.sent:  # until the replica's writes block
            before = flood.sent
            await asyncio.sleep(0.1)
        assert flood.sent <= 16 * 1024 * 1024
        (connection,) = router.replica.sessions
        await leave(client, way)
        await eventually(lambda: connection.closed, "the replica's connection closed")
        assert await router.reason() == "client_gone"
        await router.quiet()
