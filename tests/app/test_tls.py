"""TLS on both sides of the whole router."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Tls, Upstream
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.messages import chat, request
from tests.harness.reading import Response, read_response
from tests.harness.replica import eventually
from tests.harness.running import running, scenario
from tests.places import CERT, CERTIFICATES, KEY


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERT)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def ask_over_tls(port: int, data: bytes) -> Response:
    """Send one request over TLS, and read the response to its end."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusting(), server_hostname="one.test"
    )
    try:
        writer.write(data)
        found = read_response(await asyncio.wait_for(reader.read(), 5))
        assert found is not None
        return found
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except (OSError, ssl.SSLError):
            pass


@scenario
async def test_listening_with_tls() -> None:
    async with running(chat_either, tls=Tls(cert=CERT, key=KEY)) as router:
        found = await ask_over_tls(router.app.port, chat("Connection: close"))
        assert (found.status, found.complete) == (200, True)
        found = await ask_over_tls(router.app.port, chat("Connection: close", stream=True))
        assert found.events()[-1] == "[DONE]"
        asked = router.replicas[0].requests[0]
        assert asked.header("x-forwarded-proto") == "https"
        refused = await ask_over_tls(router.app.port, request("/metrics"))
        assert (refused.status, refused.complete) == (404, True)
        plain = await router.client()
        await plain.send(chat())
        await plain.expect_close()
        plain.close()
        await eventually(lambda: not router.app.parts.front.clients, "no client")


@scenario
async def test_a_new_certificate_is_read_by_a_reload(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text((CERTIFICATES / "other.pem").read_text())
    key.write_text((CERTIFICATES / "other.key").read_text())
    async with running(json_ok, tls=Tls(cert=str(cert), key=str(key))) as router:
        with pytest.raises(ssl.SSLError):
            await ask_over_tls(router.app.port, chat("Connection: close"))
        cert.write_text(Path(CERT).read_text())
        key.write_text(Path(KEY).read_text())
        await router.app.reload()
        assert (await ask_over_tls(router.app.port, chat("Connection: close"))).status == 200


@asynccontextmanager
async def tls_replica() -> AsyncIterator[tuple[str, list[bytes]]]:
    """An HTTPS engine: answers every request and records its head."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT, KEY)
    heads: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line[15:]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        for writer in writers:
            writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@scenario
async def test_https_replicas() -> None:
    upstream = Upstream(ca_file=CERT, server_name="one.test", token="t-1")
    async with tls_replica() as (url, heads), running(url, upstream=upstream) as router:
        for _ in range(3):
            assert (await router.ask()).status == 200
        (shown,) = router.app.replicas()
        assert shown["state"] == "ready"
        asked = [head for head in heads if head.startswith(b"POST")]
        assert len(asked) == 3
        assert all(b"authorization: Bearer t-1" in head for head in asked)
        assert next(iter(router.app.parts.fleet.replicas.values())).pool.opened == 1


@pytest.mark.parametrize(
    "upstream",
    [
        Upstream(ca_file=str(CERTIFICATES / "other.pem"), server_name="one.test"),
        Upstream(ca_file=CERT, server_name="two.test"),
    ],
    ids=["unknown authority", "another name"],
)
@scenario
async def test_an_https_replica_that_cannot_be_trusted_gets_nothing(upstream: Upstream) -> None:
    async with tls_replica() as (url, heads), running(url, upstream=upstream) as router:
        assert (await router.ask()).status == 503
        assert heads == []
