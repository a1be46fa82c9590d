"""Trailers of a request are never taken for fields of its head."""

from __future__ import annotations

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import running, scenario


@scenario
async def test_they_are_ignored() -> None:
    async with running(echo) as router:
        client = await router.client()
        asked = request("/upload", "Transfer-Encoding: chunked", method="POST")
        asked += (
            b"5\r\nhello\r\n0\r\nHost: evil\r\nAuthorization: evil\r\nContent-Length: 9\r\n\r\n"
        )
        for _ in range(2):
            await client.send(asked)
            answer = await client.recv_response()
            assert answer.status == 400 or answer.json()["body"] == "hello"
            if answer.status == 400:
                break
        for connection in router.replica.sessions:
            assert b"evil" not in connection.received
