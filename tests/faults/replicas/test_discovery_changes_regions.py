"""Discovery changes members and regions while a request of a limited key waits for a connection.

The new region of each replica is in force before the requests that wait for a connection to a
removed replica go to another one.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from router.config.model import Replica
from tests.app.discovery.test_files import rules, write
from tests.app.members.test_changes import states
from tests.faults.replicas.test_reload_changes_regions import (
    BOTH,
    LIMITED,
    OPEN,
    PRIVATE,
    texts,
    write_keys,
)
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.queueing import of_each
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario


def regions(router: Router) -> dict[str, str]:
    return {r.id: r.region for r in router.app.parts.fleet.replicas.values()}


@pytest.mark.parametrize("by", ["file", "reload"])
@scenario
async def test_a_request_that_leaves_a_removed_replica_knows_the_new_regions(
    tmp_path: Path, by: str
) -> None:
    """r0 leaves, r1 moves out of the allowed regions, and r2 joins, all at once."""
    file = tmp_path / "replicas.json"
    is_resolved = asyncio.Event()

    async def resolve() -> list[str]:
        await is_resolved.wait()
        return ["127.0.0.1"]

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(HostileReplica(json_ok)) for _ in range(3)]
        first, second, third = engines
        known = Replica(url=first.url, id="r0", region="us")
        stays = {"url": second.url, "id": "r1"}
        listed: list[dict[str, str]] = [{"url": first.url, "id": "r0", "region": "us"}, stays]
        write(file, *(listed if by == "file" else [stays]))
        router = await stack.enter_async_context(
            running(
                discovery=rules(file),
                region="eu",
                keys=write_keys(tmp_path / "keys.jsonl", *BOTH),
                # The request may not be refused because the first probe of r2 is late.
                classes=of_each(absent_s=8.0),
                replicas=() if by == "file" else (known,),
            )
        )
        assert regions(router) == {"r0": "us", "r1": "eu"}
        assert states(router) == {"r0": "ready", "r1": "ready"}
        # r1 has an idle connection, which could be used at once.
        near = chat(messages=[{"role": "user", "content": OPEN}])
        assert (await router.ask(near, "POST")).status == 200
        pool = router.app.parts.fleet.replicas["r0"].pool
        pool.address.resolve = resolve
        data = chat(LIMITED, "x-region: us", messages=[{"role": "user", "content": PRIVATE}])
        task = asyncio.create_task(router.ask(data, "POST"))
        await eventually(lambda: pool.waiting == 1, "the request waits for a connection")
        if by == "file":
            new = {"url": third.url, "id": "r2", "region": "us"}
            write(file, {**stays, "region": "asia"}, new)
        else:
            new_one = Replica(url=third.url, id="r2", region="us")
            router.change(replicas=(new_one,), region="asia")
            await router.app.reload()
        await eventually(lambda: regions(router) == {"r1": "asia", "r2": "us"}, "the new fleet")
        assert (await task).status == 200
        assert [texts(engine) for engine in engines] == [[], [OPEN], [PRIVATE]]
        line = (await router.log(2))[1]
        assert [replica for replica, *_ in line["tried"]] == ["r0", "r2"]
        is_resolved.set()
