"""The lines of a batch stay in the regions of their owner's key, and delay no other owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from router.addons.batches.run.sending import AHEAD, LEAST
from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Replica
from tests.addons.batches.app.helpers import open_door, results, sdk, submit, until
from tests.addons.batches.lines import numbered
from tests.harness.messages import completion
from tests.harness.queueing import waiting
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, scenario

LIMITED, FREE = "hr-a-secret-of-acme", "hr-a-secret-of-umbrella"


class Slow:
    """A replica that takes a moment for each request, and counts concurrent requests."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.02)
            self.inside -= 1
            await connection.send(completion())


def keys(folder: Path) -> Keys:
    path = folder / "keys.jsonl"
    lines = (
        KeyLine(name="acme", hash=hash_of(LIMITED.encode()), allowed_regions=("eu",)),
        KeyLine(name="umbrella", hash=hash_of(FREE.encode())),
    )
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return Keys(file=str(path), required=True)


@asynccontextmanager
async def two_regions(
    folder: Path, slow: Slow
) -> AsyncIterator[tuple[Router, HostileReplica, HostileReplica]]:
    """A router in `us`, and one replica in each of `eu` and `us`."""
    eu, us = HostileReplica(Slow()), HostileReplica(slow)
    for replica in (eu, us):
        replica.start()
    replicas = (
        Replica(url=eu.url, id="eu-1", region="eu"),
        Replica(url=us.url, id="us-1", region="us"),
    )
    async with open_door(
        folder / "b", eu, us, replicas=replicas, keys=keys(folder), region="us"
    ) as router:
        yield router, eu, us


@scenario
async def test_lines_go_to_the_allowed_region_only(tmp_path: Path) -> None:
    async with two_regions(tmp_path, Slow()) as (router, eu, us):
        async with sdk(router, LIMITED) as client:
            batch = await submit(client, numbered(20))
            assert len(await results(client, await until(client, batch.id))) == 20
        assert (len(eu.requests), len(us.requests)) == (20, 0)


@scenario
async def test_lines_that_wait_for_their_region_delay_no_other_owner(tmp_path: Path) -> None:
    slow = Slow()
    async with two_regions(tmp_path, slow) as (router, eu, us):
        await eu.stop_listening()
        fleet = router.app.parts.fleet
        await eventually(lambda: "eu-1" not in fleet.serving.ready_ids, "the region is down")
        async with sdk(router, LIMITED) as limited, sdk(router, FREE) as free:
            first = await submit(limited, numbered(2 * AHEAD))
            await eventually(lambda: waiting(router) >= AHEAD, "its lines wait")
            second = await submit(free, numbered(200))
            assert len(await results(free, await until(free, second.id))) == 200
            assert slow.most > LEAST
            assert len(us.requests) == 200
            eu.start(eu.port)
            assert len(await results(limited, await until(limited, first.id))) == 2 * AHEAD
        assert len(us.requests) == 200
