"""Trailers of a response are dropped, never merged, so they cannot add framing or cookies."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import answer
from tests.harness.messages import CHUNKED_HEAD, chat, request
from tests.harness.running import running, scenario

TRAILERS = b"Content-Length: 1\r\nSet-Cookie: evil=1\r\nX-T: 1\r\n"


@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_they_are_dropped(asked: bytes) -> None:
    data = CHUNKED_HEAD + b"3\r\nabc\r\n0\r\n" + TRAILERS + b"\r\n"
    async with running(answer(data)) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(asked)
            got = await client.recv_response()
            assert got.complete
            assert got.body == b"abc"
            assert got.trailers == []
        assert b"evil" not in client.received
        assert not client.unread
