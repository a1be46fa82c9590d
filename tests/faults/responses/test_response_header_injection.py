"""Control bytes in a response field are refused, so nothing is injected into the client's
response.
"""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer_then_fin
from tests.harness.messages import chat, request
from tests.harness.running import assert_error, running, scenario

LINES = {
    "nul": b"x-evil: a\x00b",
    "bare cr": b"x-evil: a\rset-cookie: b",
    "bare lf": b"x-evil: a\nset-cookie: b",
    "fold": b"x-evil: a\r\n b",
    "vertical tab": b"x-evil: a\x0bb",
    "escape": b"x-evil: a\x1b[31m",
    "delete": b"x-evil: a\x7fb",
    "space before colon": b"x-evil : a",
    "no colon": b"x-evil",
    "empty name": b": a",
    "name with nul": b"x\x00evil: a",
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_it_is_a_502(name: str, asked: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + LINES[name] + b"\r\n\r\nok"
    async with running(answer_then_fin(data)) as router:
        client = await router.send(asked)
        answer = await client.recv_response()
        assert_error(answer, Reason.BAD_RESPONSE)
        assert b"evil" not in client.received
        assert b"set-cookie" not in client.received
        assert await router.reason() == "bad_response"
