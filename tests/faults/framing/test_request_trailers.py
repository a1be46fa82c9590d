"""Trailers of a request are never treated as fields of its head."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import head, request
from tests.harness.running import running, scenario


def asked(*trailers: str) -> bytes:
    data = request("/upload", "Transfer-Encoding: chunked", method="POST")
    return data + b"5\r\nhello\r\n0\r\n" + head("", trailers)[2:]


@scenario
async def test_they_are_ignored() -> None:
    async with running(echo) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(asked("Host: evil", "Authorization: evil", "X-A: evil"))
            assert (await client.recv_response()).json()["body"] == "hello"
        assert len(router.replica.requests) == 2
        for connection in router.replica.sessions:
            assert b"evil" not in connection.received


@pytest.mark.parametrize("field", ["Content-Length: 9", "Transfer-Encoding: evil"])
@scenario
async def test_those_that_would_frame_it_are_refused(field: str) -> None:
    async with running(echo) as router:
        assert (await router.ask(asked(field))).status == 400
        assert not router.replica.sessions
