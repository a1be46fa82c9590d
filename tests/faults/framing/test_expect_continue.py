"""Expect: the router itself sends 100 once the size is accepted; no client waits for ever."""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import head, request
from tests.harness.running import Router, assert_error, routed


def start(size: int, *fields: str, version: str = "1.1") -> bytes:
    fixed = ["Host: a", "Expect: 100-continue", f"Content-Length: {size}"]
    return head(f"POST /upload HTTP/{version}", [*fixed, *fields])


@routed(echo, virtual=True)
async def test_100_comes_before_the_body_and_goes_no_further(router: Router) -> None:
    client = await router.send(start(5))
    assert (await client.recv_head()).startswith(b"HTTP/1.1 100 ")
    await client.send(b"hello")
    answer = await client.recv_response()
    assert answer.status == 200
    (seen,) = router.replica.requests
    assert seen.body == b"hello"
    assert seen.header("expect") is None


@routed(echo, virtual=True)
async def test_no_100_when_the_body_is_there_already(router: Router) -> None:
    """The router may send 100 or not (RFC 9110 10.1.1), but must send exactly one final answer."""
    client = await router.send(start(5), b"hello")
    answer = await client.recv_response()
    assert answer.status == 200
    assert answer.informational in ([], [100])


@routed(echo, limits={"body": 1000}, virtual=True)
async def test_too_large_is_refused_without_100(router: Router) -> None:
    client = await router.send(start(1001))
    answer = await client.recv_response()
    assert_error(answer, Reason.BODY_TOO_LARGE)
    assert answer.informational == []
    assert answer.header("connection") == "close"
    assert await client.expect_close()
    assert not router.replica.requests


@routed(echo, timeouts={"body_idle_s": 0.2}, virtual=True)
async def test_a_body_that_never_comes_takes_no_slot(router: Router) -> None:
    client = await router.send(start(5))
    await client.recv_head()
    assert router.app.census()["leases"] == 0
    assert_error(await client.recv_response(), Reason.BODY_TIMEOUT)
    assert not router.replica.requests


@routed(echo, virtual=True)
async def test_http_1_0_never_gets_100(router: Router) -> None:
    client = await router.send(start(5, version="1.0"), b"hello")
    assert (await client.recv_response()).informational == []


@pytest.mark.parametrize("value", ["200-ok", "100-continue, x", "nonsense"])
@routed(echo, virtual=True)
async def test_an_unknown_expectation_fails(router: Router, value: str) -> None:
    asked = request("/upload", f"Expect: {value}", method="POST", body=b"hello")
    assert_error(await router.ask(asked), Reason.EXPECTATION_FAILED)
    assert not router.replica.requests
