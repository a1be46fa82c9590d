"""One notice names several replicas, or is withdrawn: requests move once, and replicas return."""

import msgspec
import pytest

from router.config.model import Preemption, Queue, Replica, Spot, SpotMetadata
from router.fleet.notice import Notice
from tests.addons.needed import needs
from tests.addons.spot_notices.app.test_watcher import body
from tests.app.fleet.servers import serving
from tests.faults.replicas.test_spot_reclaimed import FIRST, VLLM, Held, moved, reclaim, spot
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, routed, running, scenario

pytestmark = needs("preemption")

PREEMPTED = "/computeMetadata/v1/instance/preempted"


def machines(*hostiles: HostileReplica) -> tuple[Replica, ...]:
    """Spot replicas, and at last one that is not."""
    for each in hostiles:
        each.start()
    last = len(hostiles) - 1
    return tuple(
        Replica(url=each.url, id=f"r{n}", spot=n < last, **VLLM) for n, each in enumerate(hostiles)
    )


QUEUES = {
    "queue": Queue(),
    "ticket": Queue(preemption=Preemption(enabled=True)),  # every request has a ticket
    "no queue": Queue(enabled=False),
}


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
@scenario
async def test_no_request_moves_to_a_replica_of_the_same_notice(queue: Queue) -> None:
    held = Held()
    hostiles = [*(HostileReplica(held) for _ in range(3)), HostileReplica(json_ok)]
    replicas = machines(*hostiles)
    async with running(replicas=replicas, policy=FIRST, queue=queue) as router:
        client = await router.send(chat())
        await eventually(lambda: len(hostiles[0].requests) == 1, "the request")
        router.app.parts.reclaims.noticed(Notice("all"), "file")
        assert (await client.recv_response()).status == 200
        assert [len(each.requests) for each in hostiles] == [1, 0, 0, 1]
        assert moved(router) == (1, 0)
        assert router.app.parts.reclaims.notices["file"] == 3
    for each in hostiles:
        await each.stop()


# -- a notice that its source withdraws -------------------------------------------------------


def states(router: Router) -> dict[str, str]:
    return {shown["id"]: shown["state"] for shown in router.app.replicas()}


@scenario
async def test_a_replica_returns_when_its_notice_is_withdrawn() -> None:
    async with serving({PREEMPTED: body("FALSE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=0.02)
        async with running(json_ok, json_ok, policy=FIRST, spot=rules) as router:
            cloud.answers[PREEMPTED] = body("TRUE")
            await eventually(lambda: states(router)["r0"] == "drained", "the notice")
            cloud.answers[PREEMPTED] = body("FALSE")
            await eventually(lambda: states(router)["r0"] == "ready", "back in service")
            assert not any(spot(router).values())
            # The duty before the notice returns, not always the service.
            await router.admin("/replicas/r0/cordon", "POST")
            cloud.answers[PREEMPTED] = body("TRUE")
            await eventually(lambda: states(router)["r0"] == "drained", "the second notice")
            cloud.answers[PREEMPTED] = body("FALSE")
            await eventually(lambda: states(router)["r0"] == "cordoned", "as before")


@scenario
async def test_a_reload_forgets_no_notice() -> None:
    async with serving({PREEMPTED: body("TRUE")}) as cloud:
        source = SpotMetadata(provider="gcp", url=cloud.server.url, replica="r0")
        rules = Spot(metadata=(source,), interval_s=3600.0)
        async with running(json_ok, json_ok, policy=FIRST, spot=rules) as router:

            async def reload(**changed: float) -> None:
                spot = msgspec.structs.replace(router.config.spot, **changed)
                router.next = msgspec.structs.replace(router.config, spot=spot)
                await router.app.reload()

            await eventually(lambda: states(router)["r0"] == "drained", "the notice")
            await router.admin("/replicas/r0/uncordon", "POST")
            await reload(interval_s=0.02)
            asked = len(cloud.asked)
            await eventually(lambda: len(cloud.asked) > asked + 2, "looks")
            assert states(router)["r0"] == "ready", "the operator has ended this notice"
            await reload(interval_s=3600.0)
            cloud.answers[PREEMPTED] = body("FALSE")
            await reload(interval_s=0.02)
            asked = len(cloud.asked)
            await eventually(lambda: len(cloud.asked) > asked + 2, "looks")
            cloud.answers[PREEMPTED] = body("TRUE")
            await eventually(lambda: states(router)["r0"] == "drained", "the second notice")
            await reload(interval_s=3600.0)
            cloud.answers[PREEMPTED] = body("FALSE")
            await reload(interval_s=0.02)
            await eventually(lambda: states(router)["r0"] == "ready", "the withdrawal")


@routed(json_ok, json_ok, policy=FIRST)
async def test_a_notice_of_another_source_remains(router: Router) -> None:
    reclaims, notice = router.app.parts.reclaims, Notice("a", 60.0, ("r0",))
    await reclaim(router, "r0")
    reclaims.noticed(notice, "azure")
    reclaims.withdrawn(notice, "azure")
    assert states(router)["r0"] == "drained", "the admin API has announced it as well"
    reclaims.withdrawn(notice, "azure")  # a second time has no effect
    reclaims.withdrawn(Notice("b", 60.0, ("r1",)), "azure")  # nor has another replica
    assert states(router) == {"r0": "drained", "r1": "ready"}
