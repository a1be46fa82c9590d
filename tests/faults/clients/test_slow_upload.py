"""A body that stops or is too slow: 408, and the replica gets no complete request."""

from __future__ import annotations

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import hang
from tests.harness.messages import head
from tests.harness.running import assert_error, running, scenario

START = head(
    "POST /v1/chat/completions HTTP/1.1",
    ["Host: a", "Content-Type: application/json", "Content-Length: 10000"],
)


@scenario
async def test_a_stalled_upload_is_refused() -> None:
    async with running(hang, timeouts={"body_idle_s": 0.2}) as router:
        client = await router.client()
        await client.send(START, b'{"model": "m"')
        assert_error(await client.recv_response(), Reason.BODY_TIMEOUT)
        assert await client.expect_close()
        assert await router.reason() == "body_timeout"
        assert not router.replica.requests


@scenario
async def test_a_slow_upload_is_refused() -> None:
    """The upload is never idle, but slower than the minimum rate."""
    timeouts = {"body_idle_s": 5.0, "body_rate": 100_000.0, "body_rate_over_s": 0.3}
    async with running(hang, timeouts=timeouts) as router:
        client = await router.client()
        await client.send(START)

        async def drip() -> None:
            try:
                while True:
                    await client.send(b" ")
                    await asyncio.sleep(0.02)
            except OSError:
                pass

        dripping = asyncio.create_task(drip())
        try:
            assert_error(await client.recv_response(), Reason.BODY_TIMEOUT)
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
        assert not router.replica.requests
