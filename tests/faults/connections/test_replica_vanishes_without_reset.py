"""A host that vanishes without a reset: a timer ends the request, and the host is ejected."""

from router.core.errors import Reason
from tests.harness.behaviours import hang, json_ok
from tests.harness.messages import chat
from tests.harness.running import assert_error, running, virtual_scenario


@virtual_scenario
async def test_the_timer_fires_and_others_take_over() -> None:
    health = {"eject_after": 1, "eject_base_s": 60.0}
    async with running(
        hang, json_ok, timeouts={"whole_s": 60.0}, health=health, policy="round_robin"
    ) as router:
        seen = []
        while 504 not in seen:
            answer = await router.ask(chat())
            seen.append(answer.status)
            assert len(seen) < 5
        assert_error(answer, Reason.WHOLE_TIMEOUT)
        for _ in range(4):
            assert (await router.ask(chat())).status == 200
        assert len(router.replicas[0].requests) == 1
