"""A redirect is passed on to the client; the router never follows one."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import answer, json_ok
from tests.harness.messages import chat, request, response
from tests.harness.replica import HostileReplica
from tests.harness.running import running, scenario


@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_it_is_not_followed(asked: bytes) -> None:
    inside = HostileReplica(json_ok)
    inside.start()
    try:
        location = f"{inside.url}/secret"
        async with running(answer(response(307, f"Location: {location}"))) as router:
            got = await router.ask(asked)
            assert got.status == 307
            assert got.header("location") == location
        assert not inside.connections
    finally:
        await inside.stop()
