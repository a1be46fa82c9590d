"""Ambiguous chunks: 400, and an already started upstream request is aborted."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import running, scenario

BAD = {
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-1\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "underscore": b"5_0\r\nhello\r\n0\r\n\r\n",
    "leading space": b" 5\r\nhello\r\n0\r\n\r\n",
    "trailing space": b"5 \r\nhello\r\n0\r\n\r\n",
    "no crlf after data": b"5\r\nhello0\r\n\r\n",
    "bare lf after size": b"5\nhello\r\n0\r\n\r\n",
    "bare lf after data": b"5\r\nhello\n0\r\n\r\n",
    "bare lf at the end": b"5\r\nhello\r\n0\n\n",
    "bare cr after size": b"5\rhello\r\n0\r\n\r\n",
    "spill": b"5\r\nhelloworld\r\n0\r\n\r\n",
    "short": b"6\r\nhello\r\n0\r\n\r\n",
    "words": b"xyz\r\nhello\r\n0\r\n\r\n",
    "empty size": b"\r\nhello\r\n0\r\n\r\n",
    "2^64": b"10000000000000000\r\nhello\r\n0\r\n\r\n",
    "2^64+5": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "extension with cr": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "extension with lf": b"5;a\nhello\r\n0\r\n\r\n",
    "extension of 64 KiB": b"5;" + b"a" * 65536 + b"\r\nhello\r\n0\r\n\r\n",
    "extensions without end": b"".join(b"1;%b\r\nx\r\n" % (b"a" * 1000) for _ in range(100)),
    "trailer without colon": b"0\r\nX\r\n\r\n",
    "trailers without end": b"0\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20_000)),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upload"])
@scenario
async def test_it_is_refused(name: str, path: str) -> None:
    start = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with running(echo) as router:
        client = await router.client()
        await client.send_pieces([start, BAD[name], request("/smuggled")])
        answer = await client.recv_response()
        assert answer.status in (400, 413, 431), answer
        answer.error()
        await client.expect_close()
        assert not client.unread
        assert not router.replica.requests


@scenario
async def test_after_a_good_chunk() -> None:
    async with running(echo) as router:
        client = await router.send(
            b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await client.send_pieces([b"5\r\nhello\r\n"] * 100 + [b"zz\r\n"])
        assert (await client.recv_response()).status == 400
        await client.expect_close()
        assert not router.replica.requests


@scenario
async def test_valid_chunks_are_forwarded_with_new_framing() -> None:
    async with running(echo) as router:
        asked = request("/upload", "Transfer-Encoding: Chunked", method="POST")
        asked += b"5;a=b\r\nhello\r\n006\r\n world\r\n000\r\n\r\n"
        assert (await router.ask(asked)).json()["body"] == "hello world"
        assert b"a=b" not in router.replica.sessions[0].received
