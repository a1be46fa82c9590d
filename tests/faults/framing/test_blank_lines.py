"""Empty lines before a request: a few are ignored (RFC 9112 section 2.2), many are refused."""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, routed

FEW = b"\r\n" * 8
FLOOD = b"\r\n" * 50_000


@routed(echo)
async def test_a_few_are_ignored(router: Router) -> None:
    client = await router.client()
    for target in ("/first", "/second"):
        await client.send(FEW + request(target))
        assert (await client.recv_response()).json()["target"] == target


@pytest.mark.parametrize("before", [b"", request("/first")], ids=["first", "after a request"])
@pytest.mark.parametrize("size", [1, 2, 3, len(FLOOD)])
@routed(echo)
async def test_a_flood_is_refused(router: Router, before: bytes, size: int) -> None:
    client = await router.client()
    if before:
        await client.send(before)
        assert (await client.recv_response()).status == 200
    data = FLOOD if size == len(FLOOD) else FLOOD[:60]
    await client.send_pieces([data[at : at + size] for at in range(0, len(data), size)])
    assert_error(await client.recv_response(), Reason.BAD_REQUEST)
    await client.expect_close()
    assert len(router.replica.requests) == bool(before)
