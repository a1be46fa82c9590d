"""Bytes beyond the end of a response are dropped, and their connection is not reused."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import answer
from tests.harness.messages import (
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    json_response,
    token,
)
from tests.harness.running import running, scenario

POISON = json_response({"poison": True})


@pytest.mark.parametrize("surplus", [b"x", b"\r\n", POISON], ids=["byte", "line", "response"])
@pytest.mark.parametrize(
    "whole",
    [completion(), SSE_HEAD + chunk(token("a")) + LAST_CHUNK],
    ids=["length", "chunked"],
)
@scenario
async def test_surplus_goes_nowhere(whole: bytes, surplus: bytes) -> None:
    async with running(answer(whole + surplus)) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(chat(stream=whole.startswith(SSE_HEAD)))
            got = await client.recv_response()
            assert got.status == 200
            assert got.complete
            assert b"poison" not in got.body
        assert not client.unread
        assert len(router.replica.sessions) == 2
        assert router.app.census()["replica_idle"] == 0
