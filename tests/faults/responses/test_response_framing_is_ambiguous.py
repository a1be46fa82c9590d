"""A response with ambiguous or unreadable framing: refused, and its connection is closed."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer
from tests.harness.messages import chat, request
from tests.harness.replica import eventually
from tests.harness.running import assert_error, running, scenario

HEADS = {
    "both": b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a list of lengths": b"Content-Length: 3, 4\r\n\r\nabc",
    "signed": b"Content-Length: +3\r\n\r\nabc",
    "hex": b"Content-Length: 0x3\r\n\r\nabc",
    "huge": b"Content-Length: 99999999999999999999\r\n\r\nabc",
    "empty": b"Content-Length: \r\n\r\nabc",
    "negative": b"Content-Length: -1\r\n\r\nabc",
    "unknown coding": b"Transfer-Encoding: pigeons\r\n\r\nabc",
    "coding not last": b"Transfer-Encoding: chunked, gzip\r\n\r\nabc",
    "coding we cannot undo": b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
}
CHUNKS = {
    "words": b"zz\r\nabc\r\n0\r\n\r\n",
    "2^64": b"10000000000000000\r\nabc",
    "negative": b"-1\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "no end": b"3\r\nabcdef\r\n0\r\n\r\n",
    "bare lf": b"3\nabc\n0\n\n",
    "extension without end": b"3;" + b"a" * (4 * 1024 * 1024),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_heads(name: str, asked: bytes) -> None:
    async with running(answer(b"HTTP/1.1 200 OK\r\n" + HEADS[name])) as router:
        assert_error(await router.ask(asked), Reason.BAD_RESPONSE)
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        assert await router.reason() == "bad_response"


@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_chunks(name: str, asked: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with running(answer(head + CHUNKS[name])) as router:
        got = await router.ask(asked)
        assert got.status == 502 or not got.complete
        if got.status == 502:
            assert_error(got, Reason.BAD_RESPONSE)
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        assert await router.reason() == "bad_response"


@scenario
async def test_trailers_without_end() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    trailers = b"".join(b"x-%d: %b\r\n" % (index, b"y" * 100) for index in range(20_000))
    async with running(answer(head + trailers)) as router:
        got = await router.ask(request("/plain"))
        assert got.status == 502 or not got.complete
        assert await router.reason() == "bad_response"
