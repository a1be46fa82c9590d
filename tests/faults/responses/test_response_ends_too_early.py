"""A clean end in the middle of a response is a truncation that the client must be able to see."""

from __future__ import annotations

import asyncio

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer_then_fin, stream_then_fin
from tests.harness.messages import CHUNKED_HEAD, chat, request, role, token
from tests.harness.running import assert_cut_stream, assert_error, running, scenario


@pytest.mark.parametrize("raw", [b"", b"40\r\ndata: {", b"4", b"0\r\n"])
@scenario
async def test_stream_without_its_last_chunk(raw: bytes) -> None:
    go = asyncio.Event()
    async with running(stream_then_fin(go, role(), token("a"), raw=raw)) as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"a"')
        go.set()
        assert_cut_stream(await client.recv_response(), Reason.REPLICA_RESET)
        assert await router.reason() == "replica_reset"


@scenario
async def test_stream_before_its_first_content() -> None:
    go = asyncio.Event()
    go.set()
    async with running(stream_then_fin(go, role())) as router:
        assert_error(await router.ask(chat(stream=True)), Reason.REPLICA_RESET)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        CHUNKED_HEAD + b"3\r\nabc\r\n",
        CHUNKED_HEAD + b"3\r\nabc\r\n5\r\nab",
    ],
    ids=["length", "chunk missing", "chunk cut"],
)
@scenario
async def test_plain_response_is_not_padded(data: bytes) -> None:
    async with running(answer_then_fin(data)) as router:
        client = await router.send(request("/plain"))
        answer = await client.recv_response()
        assert answer.status == 200
        assert not answer.complete
        assert bytes(answer.body).startswith(b"abc")
        assert await client.expect_close()
        assert await router.reason() == "replica_reset"


@scenario
async def test_completion_cut_before_anything_was_relayed() -> None:
    """A whole JSON answer is one content event, so half of it can still become an error."""
    data = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
    async with running(answer_then_fin(data)) as router:
        answer = await router.ask(chat())
        assert not answer.complete or answer.status == 502
        assert await router.reason() == "replica_reset"


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nx: y\r\n"])
@scenario
async def test_head_cut(data: bytes) -> None:
    async with running(answer_then_fin(data), retry={"attempts": 1}) as router:
        assert_error(await router.ask(request("/plain")), Reason.REPLICA_RESET)
