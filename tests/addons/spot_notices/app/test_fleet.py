"""Notices from a file and from metadata services: replicas are drained once, also over restarts."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec
import pytest

from router.app.restart.fleet_state import state_of
from router.config.model import Spot, SpotMetadata
from router.fleet.membership import Duty
from tests.addons.spot_notices.app.test_watcher import body
from tests.app.fleet.servers import Answers, serving
from tests.app.restart.test_fleet_state import adopted, duty_of
from tests.faults.replicas.test_spot_reclaimed import spot, three
from tests.harness.behaviours import json_ok
from tests.harness.emulated import emulated
from tests.harness.replica import eventually
from tests.harness.running import running, scenario

PREEMPTED = "/computeMetadata/v1/instance/preempted"


@scenario
async def test_a_notice_is_withdrawn_after_the_restart() -> None:
    answers: Answers = {PREEMPTED: body("TRUE")}
    async with serving(answers) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=0.02)
        async with running(json_ok, json_ok, spot=rules) as old:
            await eventually(lambda: duty_of(old) == Duty.DRAINING, "the notice")
            state = state_of(old.app.parts)
        answers[PREEMPTED] = body("FALSE")
        async with running(json_ok, json_ok, spot=rules) as new:
            adopted(new, state)
            assert duty_of(new) == Duty.DRAINING
            await eventually(lambda: duty_of(new) == Duty.IN_SERVICE, "back in service")


@scenario
async def test_a_notice_that_the_operator_ended_is_not_applied_after_the_restart() -> None:
    async with serving({PREEMPTED: body("TRUE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=0.02)
        async with running(json_ok, json_ok, spot=rules) as old:
            await eventually(lambda: duty_of(old) == Duty.DRAINING, "the notice")
            await old.admin("/replicas/r0/uncordon", "POST")
            state = state_of(old.app.parts)
        idle = Spot(notice_file="/no/such/file")
        async with running(json_ok, json_ok, spot=idle) as new:
            adopted(new, state)
            asked = len(cloud.asked)
            changed = msgspec.structs.replace(new.config, spot=rules)
            new.app.parts.addons["spot_notices"].adopt(changed, None)
            await eventually(lambda: len(cloud.asked) > asked + 2, "looks")
            assert duty_of(new) == Duty.IN_SERVICE


@pytest.mark.parametrize(
    ("target", "reclaimed"), [({}, "r0"), ({"node": "n"}, "r1"), ({"replica": "r2"}, "r2")]
)
def test_a_metadata_service_names_its_replicas(target: dict[str, str], reclaimed: str) -> None:
    @scenario
    async def check() -> None:
        path = "/computeMetadata/v1/instance/preempted"
        async with AsyncExitStack() as stack:
            cloud = await stack.enter_async_context(serving({path: body("FALSE")}))
            urls = [(await stack.enter_async_context(emulated("vllm"))).url for _ in range(3)]
            sources = (SpotMetadata(provider="gcp", url=cloud.server.url, **target),)
            rules = Spot(metadata=sources, interval_s=0.02)
            async with running(replicas=three(*urls), spot=rules) as router:
                await eventually(lambda: len(cloud.asked) > 2, "several looks")
                assert not any(spot(router).values())
                cloud.answers[path] = body("TRUE")
                await eventually(lambda: any(spot(router).values()), "the notice")
                assert spot(router) == {id: id == reclaimed for id in ("r0", "r1", "r2")}
                # The same notice does not drain a replica that the operator returned to service.
                await router.admin(f"/replicas/{reclaimed}/uncordon", "POST")
                asked = len(cloud.asked)
                await eventually(lambda: len(cloud.asked) > asked + 2, "several looks")
                assert not any(spot(router).values())

    check()


@scenario
async def test_a_reload_begins_to_ask() -> None:
    async with serving({PREEMPTED: body("TRUE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        async with running(json_ok, json_ok) as router:
            assert "spot_notices" not in router.app.parts.addons
            router.change(spot=Spot(metadata=(source,), interval_s=0.02))
            await router.app.reload()
            await eventually(lambda: duty_of(router) == Duty.DRAINING, "the notice")
            await router.app.reload()
            assert router.app.parts.addons["spot_notices"].running == 1
