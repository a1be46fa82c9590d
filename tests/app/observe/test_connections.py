"""Clients that connect to the admin port and send nothing: they take few files, and lock out none.

The TLS cases also send a request in the same bytes as the end of the handshake.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest

from router.observe.admin import connections
from router.observe.admin.listener import Admin
from router.observe.families.collector import Collector
from router.observe.metrics import Metrics
from tests.app.observe.test_listener import Actions
from tests.harness.replica import eventually
from tests.harness.running import scenario
from tests.places import CERT, KEY

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
MOST = 8

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERT, KEY)
    return server, ssl.create_default_context(cafile=CERT)


async def started(listener: Admin, tls: ssl.SSLContext | None) -> int:
    """Start the listener on a free port, and return the port."""
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    port: int = sock.getsockname()[1]
    await listener.start([sock], lambda: tls)
    return port


def serve(story: Callable[[int], Awaitable[None]], tls: ssl.SSLContext | None) -> None:
    @scenario
    async def check() -> None:
        listener = Admin(Actions(), Collector(Metrics()))
        port = await started(listener, tls)
        try:
            await story(port)
        finally:
            await listener.stop()

    check()


async def livez(port: int, tls: ssl.SSLContext | None = None) -> bytes:
    name = None if tls is None else "one.test"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    writer.write(LIVEZ)
    found = await reader.read()
    writer.close()
    await writer.wait_closed()
    return found


async def is_closed(stream: Stream) -> bool:
    """Whether the listener closes a connection within a short time."""
    try:
        async with asyncio.timeout(0.3):
            return await stream[0].read() == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_silent_clients_lock_out_no_other(secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", MOST)
    server, client = contexts() if secure else (None, None)

    async def story(port: int) -> None:
        silent: list[Stream] = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MOST)
        ]
        assert b"200 OK" in await livez(port, client)
        are_closed = [await is_closed(stream) for stream in silent]
        assert are_closed == [True] * (2 * MOST + 1) + [False] * (MOST - 1)
        for _, writer in silent:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for _, writer in silent), return_exceptions=True
        )

    serve(story, server)


def test_a_request_that_comes_with_the_end_of_the_handshake() -> None:
    server, client = contexts()

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = client.wrap_bio(received, sent, server_hostname="one.test")
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(sent.read())
                received.write(await reader.read(65536))
        session.write(LIVEZ)
        writer.write(sent.read())  # the client's last message of the handshake, and the request
        answer = b""
        while not answer.endswith(b"ok\n"):
            received.write(await reader.read(65536))
            try:
                answer += session.read(65536)
            except ssl.SSLWantReadError:
                continue
        writer.close()
        await writer.wait_closed()

    serve(story, server)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "not TLS"])
def test_a_handshake_that_fails_leaves_nothing(data: bytes) -> None:
    server, client = contexts()

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        assert b"200 OK" in await livez(port, client)
        if not data:  # The client leaves before the handshake.
            writer.transport.abort()
            return
        await reader.read()
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    serve(story, server)


def test_a_stop_ends_a_handshake() -> None:
    server, _ = contexts()
    streams: list[Stream] = []

    async def story(port: int) -> None:
        streams.append(await asyncio.open_connection("127.0.0.1", port))
        await asyncio.sleep(0.05)

    @scenario
    async def check() -> None:
        listener = Admin(Actions(), Collector(Metrics()))
        await story(await started(listener, server))
        await listener.stop()
        assert await is_closed(streams[0])
        streams[0][1].close()
        await asyncio.gather(streams[0][1].wait_closed(), return_exceptions=True)

    check()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_bodies_in_chunks_of_one_byte_are_passed_on_in_slices(secure: bool) -> None:
    """They arrive whole, and two requests that follow each other in one write, too."""
    server, client = contexts() if secure else (None, None)
    body = b"x" * 40_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    asked = b"POST /drain HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks

    async def story(port: int) -> None:
        name = "one.test" if secure else None

        async def ask(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client, server_hostname=name
            )
            writer.write(data)
            found = await reader.read()
            writer.close()
            await writer.wait_closed()
            return found

        answers = await asyncio.gather(*(ask(asked + LIVEZ) for _ in range(4)), ask(LIVEZ))
        assert [one.count(b"202 Accepted") for one in answers] == [1, 1, 1, 1, 0]
        assert [one.count(b"200 OK") for one in answers] == [1] * 5

    serve(story, server)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_request_whose_client_closes_at_once_is_served(secure: bool) -> None:
    """Its last bytes wait for a later turn when the connection ends."""
    server, client = contexts() if secure else (None, None)
    body = b"x" * 60_000
    head = b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)

    @scenario
    async def check() -> None:
        actions = Actions()
        listener = Admin(actions, Collector(Metrics()))
        port = await started(listener, server)
        try:
            name = "one.test" if secure else None
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client, server_hostname=name
            )
            writer.write(head + body)
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
            await eventually(lambda: actions.drains == 1, "drained")
            (one,) = listener._listeners
            aiohttp = one.runner.server
            assert aiohttp is not None
            await eventually(lambda: not aiohttp.connections, "aiohttp is told of the end")
        finally:
            await listener.stop()

    check()
