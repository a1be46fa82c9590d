"""Methods that are not served, and methods that do not exist."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import assert_error, running, scenario


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("CONNECT a:443 HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
        ("TRACE / HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
        ("FOOBAR / HTTP/1.1", Reason.METHOD_UNKNOWN),
        ("get / HTTP/1.1", Reason.METHOD_UNKNOWN),
        ("Post / HTTP/1.1", Reason.METHOD_UNKNOWN),
        ("GETGET / HTTP/1.1", Reason.METHOD_UNKNOWN),
    ],
)
@scenario
async def test_it_is_refused_and_closed(line: str, reason: Reason) -> None:
    async with running(echo) as router:
        client = await router.send(f"{line}\r\nHost: a\r\n\r\n".encode())
        answer = await client.recv_response()
        assert_error(answer, reason)
        assert await client.expect_close()
        assert not router.replica.requests
        assert await router.reason() == reason.value


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@scenario
async def test_these_pass(method: str) -> None:
    async with running(echo) as router:
        answer = await router.ask(request("/plain", method=method))
        assert answer.json()["method"] == method
