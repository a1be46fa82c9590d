"""Replicas that close each new connection before the request is sent: another replica serves."""

from typing import Any

import pytest

from tests.harness.behaviours import answer, json_ok
from tests.harness.listeners import closer
from tests.harness.messages import json_response, post_json
from tests.harness.running import running, scenario

ASKS: dict[str, Any] = {"model": "m", "input": "hello"}
SAYS = answer(json_response({"id": "resp_1", "object": "response", "output": []}))


@pytest.mark.parametrize("rst", [False, True], ids=["FIN", "reset"])
@scenario
async def test_a_request_that_must_not_run_twice_goes_elsewhere(rst: bool) -> None:
    """Two such replicas do not show that the request crashes replicas."""
    settings = {"retry": {"budget_min": 0, "budget": 0.0}, "policy": "round_robin"}
    why = "probes would find two replicas down"
    async with running(json_ok, json_ok, SAYS, quiet_control_plane=why, **settings) as router:
        broken, asked = router.replicas[:2], post_json("/v1/responses", ASKS)
        for replica in broken:
            await replica.stop_listening()
        with closer(broken[0].port, rst=rst), closer(broken[1].port, rst=rst):
            for _ in range(3):
                assert (await router.ask(asked)).status == 200
        lines = await router.log(3)
        assert {line["reason"] for line in lines} == {"ok"}
        failed = {tried[2] for line in lines for tried in line["tried"][:-1]}
        assert failed == {"connect_failed"}
        assert max(line["attempts"] for line in lines) == 3
