"""Ambiguous lengths and codings: 400 or 501, and never forwarded."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import running, scenario

BAD = {
    "both": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "both, other order": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "twice, different": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "twice, equal": b"Content-Length: 5\r\nContent-Length: 5\r\n",
    "list": b"Content-Length: 5, 5\r\n",
    "plus": b"Content-Length: +5\r\n",
    "minus": b"Content-Length: -5\r\n",
    "hex": b"Content-Length: 0x5\r\n",
    "underscore": b"Content-Length: 5_0\r\n",
    "space": b"Content-Length: 5 5\r\n",
    "empty": b"Content-Length: \r\n",
    "arabic digit": "Content-Length: ٥\r\n".encode(),
    "fraction": b"Content-Length: 5.0\r\n",
    "quoted": b'Content-Length: "5"\r\n',
    "2^64": b"Content-Length: 18446744073709551616\r\n",
    "2^64+5": b"Content-Length: 18446744073709551621\r\n",
    "space before colon": b"Content-Length : 5\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "coding after chunked": b"Transfer-Encoding: chunked, identity\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n",
    "chunked in two fields": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "gzip then chunked": b"Transfer-Encoding: gzip, chunked\r\n",
    "empty coding": b"Transfer-Encoding: \r\n",
    "quoted coding": b'Transfer-Encoding: "chunked"\r\n',
    "tab in the name": b"Transfer\tEncoding: chunked\r\n",
    "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
    "parameter": b"Transfer-Encoding: chunked;a=b\r\n",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upload"])
@scenario
async def test_it_is_refused(name: str, path: str) -> None:
    line = f"POST {path} HTTP/1.1\r\nHost: a\r\n".encode()
    async with running(echo) as router:
        client = await router.send(line, BAD[name], b"\r\n", b"0\r\n\r\n", request("/smuggled"))
        answer = await client.recv_response()
        assert answer.status in (400, 413, 501), answer
        answer.error()
        await client.expect_close()
        assert not client.unread
        assert not router.replica.requests
        assert not router.replica.sessions


@scenario
async def test_chunked_in_http_1_0() -> None:
    async with running(echo) as router:
        client = await router.send(
            b"POST /upload HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        answer = await client.recv_response()
        assert answer.status == 400
        await client.expect_close()
        assert not router.replica.requests


@pytest.mark.parametrize("spelling", ["005", "5 ", "  5"])
@scenario
async def test_a_length_is_forwarded_in_canonical_form(spelling: str) -> None:
    async with running(echo) as router:
        asked = request("/upload", f"Content-Length: {spelling}", method="POST") + b"hello"
        assert (await router.ask(asked)).json()["body"] == "hello"
        assert router.replica.requests[0].header("content-length") == "5"
        received = bytes(router.replica.sessions[0].received).lower()
        assert received.count(b"content-length:") == 1
        assert b"content-length: 5\r\n" in received
