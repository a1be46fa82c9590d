"""A head above its limits is refused at the limit, in one read or many, each with its own
status.
"""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import assert_error, running, scenario

LONG = {
    "target": (request("/" + "a" * 9000), Reason.TARGET_TOO_LONG),
    "endless target": (b"GET /" + b"a" * 200_000, Reason.TARGET_TOO_LONG),
    "value": (request("/", "X: " + "a" * 70_000), Reason.HEAD_TOO_LARGE),
    "name": (request("/", "X" * 70_000 + ": a"), Reason.HEAD_TOO_LARGE),
    "endless value": (request("/")[:-2] + b"X: " + b"a" * 200_000, Reason.HEAD_TOO_LARGE),
    "fields": (request("/", *(f"X-{n}: a" for n in range(101))), Reason.HEAD_TOO_LARGE),
    "many fields": (request("/", *(f"X-{n}: a" for n in range(5000))), Reason.HEAD_TOO_LARGE),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("piece", [1_000_000, 997])
@scenario
async def test_it_is_refused(name: str, piece: int) -> None:
    data, reason = LONG[name]
    async with running(echo) as router:
        client = await router.client()
        await client.send_pieces(data[at : at + piece] for at in range(0, len(data), piece))
        assert_error(await client.recv_response(), reason)
        await client.expect_close()
        assert not router.replica.requests
        assert await router.reason() == reason.value


@scenario
async def test_just_within() -> None:
    async with running(echo) as router:
        path = "/" + "a" * 7000
        fields = [f"X-{n}: {'v' * 400}" for n in range(95)]
        assert (await router.ask(request(path, *fields))).json()["target"] == path
