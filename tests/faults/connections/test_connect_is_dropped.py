"""A replica whose SYNs are dropped: the connect timeout expires and another replica serves."""

from router.config.model import Classes, ClassTimeouts, HighClass
from router.core.errors import Reason
from tests.harness import clocks
from tests.harness.behaviours import json_ok
from tests.harness.listeners import blackhole
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, running, virtual_scenario

FAST = {"connect_s": 0.2}  # all attempts end before the wait for an absent fleet
WARM = {"slow_start_s": 0.0}


def once_well(router: Router) -> None:
    """Mark every replica as healthy: an unprobed replica that does not answer would get no
    request.
    """
    fleet = router.app.parts.fleet
    for replica in fleet.replicas.values():
        fleet.probes.learned(replica, {"m": {"id": "m"}})
        fleet.probes.probed(replica, True)


@virtual_scenario
async def test_another_replica_serves() -> None:
    with blackhole() as url:
        settings = {"timeouts": FAST, "health": WARM, "policy": "round_robin"}
        async with running(url, json_ok, **settings) as router:
            once_well(router)
            for _ in range(2):
                assert (await router.ask(chat())).status == 200
            assert sorted(line["attempts"] for line in await router.log(2)) == [1, 2]


@virtual_scenario
async def test_no_other_replica() -> None:
    with blackhole() as url:
        async with running(url, timeouts=FAST, health=WARM) as router:
            once_well(router)
            answer = await router.ask(chat())
            assert_error(answer, Reason.CONNECT_TIMEOUT)
            assert await router.reason() == "connect_timeout"


@virtual_scenario
async def test_no_other_replica_with_the_shipped_durations() -> None:
    """Probes find the replica down while the request waits for it: the reason stays."""
    with blackhole() as url:
        async with running(url, health=WARM) as router:
            once_well(router)
            assert_error(await router.ask(chat()), Reason.CONNECT_TIMEOUT)
            assert await router.reason() == "connect_timeout"


@virtual_scenario
async def test_a_client_that_leaves_meanwhile_frees_its_slot() -> None:
    with blackhole() as first, blackhole() as second:
        async with running(
            first, second, timeouts={"connect_s": 0.5}, policy="round_robin"
        ) as router:
            once_well(router)
            client = await router.send(chat())
            await eventually(lambda: router.busy().get("leases", 0) == 1, "an attempt")
            client.rst()
            (line,) = await router.log()
            assert line["reason"] == "client_gone"
            assert line["attempts"] <= 1
            assert not router.busy().get("leases")


@virtual_scenario
async def test_a_class_may_wait_longer_than_the_others() -> None:
    """The replica gets the longer timeout at the start or by a reload."""
    patient = Classes(high=HighClass(timeouts=ClassTimeouts(connect_s=30.0)))
    for first in (patient, Classes()):
        with blackhole() as url:
            async with running(url, timeouts=FAST, health=WARM, classes=first) as router:
                once_well(router)
                router.change(classes=clocks.classes(patient))
                await router.app.reload()
                client = await router.send(chat("x-priority: high"))
                await eventually(lambda r=router: r.busy().get("leases", 0) == 1, "an attempt")  # type: ignore[misc]
                assert_error(await router.ask(chat()), Reason.CONNECT_TIMEOUT)
                assert await router.reason() == "connect_timeout"  # of the only request that ended
                client.rst()
                await router.log(2)
