"""A refusal during an upload: the client can read the status, and the router stops reading."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import head
from tests.harness.running import running, scenario

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [("/upload", 100 * MB, 413), ("/metrics", 20 * MB, 404), ("/a#b", 20 * MB, 400)],
)
@scenario
async def test_the_client_reads_the_status(path: str, size: int, status: int) -> None:
    """The client writes its whole body before it reads: no reset may destroy the answer."""
    async with running(echo, limits={"body": 50 * MB}) as router:
        client = await router.client()
        await client.send(head(f"POST {path} HTTP/1.1", ["Host: a", f"Content-Length: {size}"]))
        piece = bytes(256 * 1024)

        async def upload() -> None:
            for _ in range(size // len(piece)):
                await client.send(piece)

        uploading = asyncio.create_task(upload())
        answer = await client.recv_response()
        assert answer.status == status
        await client.expect_close()
        await asyncio.gather(uploading, return_exceptions=True)
        assert not router.replica.requests


@scenario
async def test_an_endless_upload_is_cut_off() -> None:
    async with running(echo, limits={"body": 1000}) as router:
        client = await router.client()
        await client.send(head("POST /upload HTTP/1.1", ["Host: a", "Transfer-Encoding: chunked"]))
        piece = b"10000\r\n" + bytes(65536) + b"\r\n"
        sent = 0
        try:
            while sent < 2048 * MB:
                await client.send(piece)
                sent += len(piece)
                await asyncio.sleep(0)
        except OSError:
            pass
        assert sent < 512 * MB
        await router.quiet()
        assert not router.replica.requests
