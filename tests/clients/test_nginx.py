"""nginx with its defaults in front of the router: it buffers, and gives up on silent streams."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import program, started
from tests.harness import kit

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
async def nginx(
    folder: Path, router: int, read_timeout: str = "60s"
) -> AsyncIterator[kit.RawClient]:
    """Run nginx in front of a router's port; yields a client that is connected to nginx."""
    port = kit.free_port()
    file = folder / "nginx.conf"
    file.write_text(
        CONFIG.format(folder=folder, port=port, router=router, read_timeout=read_timeout)
    )

    def is_listening() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    files: list[str | Path] = ["-p", folder, "-e", folder / "error.log", "-c", file]
    with started([program("nginx"), *files]):
        await kit.eventually(is_listening, "nginx listens")
        client = await kit.RawClient.connect(port)
        try:
            yield client
        finally:
            client.close()


def message(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return kit.event({"type": "content_block_delta", "index": 0, "delta": delta})


# The body of a request for a stream, and an event with text, by path.
STREAMS: dict[str, tuple[dict[str, Any], Callable[[str], bytes]]] = {
    "/v1/chat/completions": (kit.chat_body(stream=True), kit.token),
    "/v1/completions": (
        {"model": "m", "prompt": "hello", "stream": True},
        lambda text: kit.event({"choices": [{"index": 0, "text": text}]}),
    ),
    "/v1/messages": (kit.chat_body(stream=True, max_tokens=9), message),
    "/v1/responses": (
        {"model": "m", "input": "hello", "stream": True},
        lambda text: kit.event({"type": "response.output_text.delta", "delta": text}),
    ),
}


@pytest.mark.parametrize("path", STREAMS)
@kit.scenario
async def test_each_event_arrives_at_once(path: str, tmp_path: Path) -> None:
    """The engine sends the next event only when the client has the one before."""
    body, text = STREAMS[path]
    has = [asyncio.Event() for _ in range(3)]

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD)
        for n, arrived in enumerate(has):
            await connection.send(kit.chunk(text(f"<{n}>")))
            await kit.until_told(connection, arrived)
        await connection.send(kit.LAST_CHUNK)

    async with kit.running(behave) as router, nginx(tmp_path, router.port) as client:
        await client.send(kit.post_json(path, body))
        for n, arrived in enumerate(has):
            await client.recv_until(f"<{n}>".encode())
            arrived.set()
        await client.recv_until(kit.LAST_CHUNK)


@pytest.mark.parametrize("before", ["", "content"])
@kit.scenario
async def test_comments_keep_a_silent_stream_open(before: str, tmp_path: Path) -> None:
    """Before and after the first content, for longer than nginx waits for the next bytes."""
    go = asyncio.Event()

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.token(before)) if before else b"")
        await kit.until_told(connection, go)
        await connection.send(
            kit.chunk(kit.token("late", "stop")), kit.chunk(kit.DONE), kit.LAST_CHUNK
        )

    async with (
        kit.running(behave, timeouts={"commit_after_s": 0.25}) as router,
        nginx(tmp_path, router.port, read_timeout=f"{SILENCE_S}s") as client,
    ):
        began = asyncio.get_running_loop().time()
        await client.send(kit.post_json("/v1/chat/completions", kit.chat_body(stream=True)))
        while asyncio.get_running_loop().time() < began + 1.5 * SILENCE_S:
            await client.recv_until(b"\n\n")
        go.set()
        await client.recv_until(kit.DONE)
        assert b"late" in client.received
