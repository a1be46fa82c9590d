"""An unrequested 101 is not an answer: 502, and no tunnel."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer
from tests.harness.messages import chat, request
from tests.harness.replica import eventually
from tests.harness.running import assert_error, running, scenario

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nxyz"


@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_it_is_a_502(asked: bytes) -> None:
    async with running(answer(SWITCH)) as router:
        client = await router.send(asked)
        assert_error(await client.recv_response(), Reason.BAD_RESPONSE)
        assert b"xyz" not in client.received
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
        assert await router.reason() == "bad_response"
