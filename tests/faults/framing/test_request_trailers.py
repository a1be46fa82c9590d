"""Trailers of a request are never treated as fields of its head."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import head, request
from tests.harness.running import Router, routed


def asked(*trailers: str) -> bytes:
    data = request("/upload", "Transfer-Encoding: chunked", method="POST")
    return data + b"5\r\nhello\r\n0\r\n" + head("", trailers)[2:]


@routed(echo)
async def test_they_are_ignored(router: Router) -> None:
    client = await router.client()
    for _ in range(2):
        await client.send(asked("Host: evil", "Authorization: evil", "X-A: evil"))
        assert (await client.recv_response()).json()["body"] == "hello"
    assert len(router.replica.requests) == 2
    for connection in router.replica.sessions:
        assert b"evil" not in connection.received


@pytest.mark.parametrize("field", ["Content-Length: 9", "Transfer-Encoding: evil"])
@routed(echo)
async def test_those_that_would_frame_it_are_refused(router: Router, field: str) -> None:
    assert (await router.ask(asked(field))).status == 400
    assert not router.replica.sessions
