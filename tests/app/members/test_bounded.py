"""Hundreds of replicas are added and removed: nothing remains in memory or in metrics."""

import asyncio
import gc
from collections import Counter

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, long_scenario, running

ROUNDS = 150
WITH_REQUESTS = 10  # rounds in which the replica also serves requests


async def rounds(router: Router, url: str, name: str) -> None:
    """Add and remove `ROUNDS` replicas, each with an ID of its own."""
    members, fleet = router.app.members, router.app.parts.fleet
    for number in range(ROUNDS):
        replica_id = f"{name}-{number}"
        members.add({"url": url, "id": replica_id})
        await asyncio.sleep(0)
        if number < WITH_REQUESTS:
            replica = fleet.replicas[replica_id]
            await eventually(lambda replica=replica: replica in fleet.serving.ready, "up")  # type: ignore[misc]
            client = await router.client()
            for _ in range(2):
                await client.send(chat())
                assert (await client.recv_response()).status == 200
            client.close()
            members.set_duty(replica_id, "drain")
            members.reclaim(replica_id, 60.0)
        members.remove(replica_id)
    await eventually(lambda: router.app.census()["probes"] == 1, "the end of the probes")
    await router.quiet()


def held() -> Counter[str]:
    """The number of objects of the router's classes, by class."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(
        kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("router.")
    )


@long_scenario
async def test_added_and_removed_replicas_leave_nothing() -> None:
    async with (
        HostileReplica(json_ok) as other,
        running(json_ok, policy="round_robin", health={"slow_start_s": 0.0}) as router,
    ):
        await rounds(router, other.url, "first")
        before, series = held(), (await router.admin("/metrics")).body.count(b"\n")
        await rounds(router, other.url, "second")
        await asyncio.sleep(1.1)  # the reclaimed replicas are examined once a second
        grown = {name: n for name, n in (held() - before).items() if n >= WITH_REQUESTS}
        # Source addresses whose connections are closed are dropped later (`core/ranking.py`).
        grown.pop("Origin", None)
        assert grown == {}
        # Values that have become unknown, such as the KV usage of a page that stands still, have no
        # series.
        assert (await router.admin("/metrics")).body.count(b"\n") <= series
        assert not router.app.parts.reclaims._reclaims
