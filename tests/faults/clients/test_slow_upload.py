"""A body that stops or is too slow: 408, and the replica gets no complete request."""

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import hang
from tests.harness.messages import head
from tests.harness.running import Router, assert_error, routed
from tests.harness.virtual_time import takes

START = head(
    "POST /v1/chat/completions HTTP/1.1",
    ["Host: a", "Content-Type: application/json", "Content-Length: 10000"],
)


@routed(hang, virtual=True)
async def test_a_stalled_upload_is_refused(router: Router) -> None:
    client = await router.send(START, b'{"model": "m"')
    with takes(30.0):
        answer = await client.recv_response()
    assert_error(answer, Reason.BODY_TIMEOUT)
    assert await client.expect_close()
    assert await router.reason() == "body_timeout"
    assert not router.replica.requests


@routed(hang, virtual=True)
async def test_a_slow_upload_is_refused(router: Router) -> None:
    """The upload is never idle, but slower than the minimum rate."""
    client = await router.send(START)

    async def drip() -> None:
        try:
            while True:
                await client.send(b" ")
                await asyncio.sleep(1.0)
        except OSError:
            pass

    dripping = asyncio.create_task(drip())
    try:
        with takes(30.0):
            answer = await client.recv_response()
        assert_error(answer, Reason.BODY_TIMEOUT)
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert not router.replica.requests
