"""An endless response head is refused at the limit, however it grows."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import until_closed
from tests.harness.messages import chat, request
from tests.harness.replica import ReplicaConnection
from tests.harness.running import assert_error, running, scenario

FIELDS = b"".join(b"x-%d: y\r\n" % index for index in range(10_000))
HEADS = {
    "fields": FIELDS,
    "few bytes in too many fields": b"a:b\r\n" * 201,
    "value": b"x: " + b"y" * 1_000_000,
    "name": b"x" * 1_000_000,
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_it_is_a_502(name: str, asked: bytes) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(b"HTTP/1.1 200 OK\r\n", HEADS[name], b"\r\n\r\n")
        await until_closed(connection)

    async with running(behave) as router:
        assert_error(await router.ask(asked), Reason.BAD_RESPONSE)
        assert await router.reason() == "bad_response"


@scenario
async def test_a_reason_phrase_without_end() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(b"HTTP/1.1 200 ", b"O" * 1_000_000)
        await until_closed(connection)

    async with running(behave) as router:
        assert_error(await router.ask(chat()), Reason.BAD_RESPONSE)
