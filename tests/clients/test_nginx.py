"""nginx with its defaults in front of the router: it buffers, and gives up on silent streams."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.behaviours import until_told
from tests.harness.client import RawClient
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat_body,
    chunk,
    event,
    post_json,
    token,
)
from tests.harness.ports import free_port
from tests.harness.programs import program, started
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario

# Only `proxy_read_timeout` changes what nginx does: by default it waits 60 s for the next bytes.
CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{router};
            proxy_read_timeout {read_timeout};
        }}
    }}
}}
"""
SILENCE_S = 2  # seconds: `proxy_read_timeout` where a test waits for it


@asynccontextmanager
async def nginx(folder: Path, router: int, read_timeout: str = "60s") -> AsyncIterator[RawClient]:
    """Run nginx in front of a router's port; yields a client that is connected to nginx."""
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(
        CONFIG.format(folder=folder, port=port, router=router, read_timeout=read_timeout)
    )

    def is_listening() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    files: list[str | Path] = ["-p", folder, "-e", folder / "error.log", "-c", file]
    with started([program("nginx"), *files]):
        await eventually(is_listening, "nginx listens")
        client = await RawClient.connect(port)
        try:
            yield client
        finally:
            client.close()


def message(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return event({"type": "content_block_delta", "index": 0, "delta": delta})


# The body of a request for a stream, and an event with text, by path.
STREAMS: dict[str, tuple[dict[str, Any], Callable[[str], bytes]]] = {
    "/v1/chat/completions": (chat_body(stream=True), token),
    "/v1/completions": (
        {"model": "m", "prompt": "hello", "stream": True},
        lambda text: event({"choices": [{"index": 0, "text": text}]}),
    ),
    "/v1/messages": (chat_body(stream=True, max_tokens=9), message),
    "/v1/responses": (
        {"model": "m", "input": "hello", "stream": True},
        lambda text: event({"type": "response.output_text.delta", "delta": text}),
    ),
}


@pytest.mark.parametrize("path", STREAMS)
@scenario
async def test_each_event_arrives_at_once(path: str, tmp_path: Path) -> None:
    """The engine sends the next event only when the client has the one before."""
    body, text = STREAMS[path]
    has = [asyncio.Event() for _ in range(3)]

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        for n, arrived in enumerate(has):
            await connection.send(chunk(text(f"<{n}>")))
            await until_told(connection, arrived)
        await connection.send(LAST_CHUNK)

    async with running(behave) as router, nginx(tmp_path, router.port) as client:
        await client.send(post_json(path, body))
        for n, arrived in enumerate(has):
            await client.recv_until(f"<{n}>".encode())
            arrived.set()
        await client.recv_until(LAST_CHUNK)


@pytest.mark.parametrize("before", ["", "content"])
@scenario
async def test_comments_keep_a_silent_stream_open(before: str, tmp_path: Path) -> None:
    """Before and after the first content, for longer than nginx waits for the next bytes."""
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token(before)) if before else b"")
        await until_told(connection, go)
        await connection.send(chunk(token("late", "stop")), chunk(DONE), LAST_CHUNK)

    async with (
        running(behave, timeouts={"commit_after_s": 0.25}) as router,
        nginx(tmp_path, router.port, read_timeout=f"{SILENCE_S}s") as client,
    ):
        began = asyncio.get_running_loop().time()
        await client.send(post_json("/v1/chat/completions", chat_body(stream=True)))
        while asyncio.get_running_loop().time() < began + 1.5 * SILENCE_S:
            await client.recv_until(b"\n\n")
        go.set()
        await client.recv_until(DONE)
        assert b"late" in client.received
