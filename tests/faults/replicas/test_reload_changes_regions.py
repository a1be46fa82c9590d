"""A reload changes the regions of a key or of a replica while requests wait or connect.

The new regions apply to every request that no replica has received yet.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Prefix, Replica
from tests.addons.needed import needs
from tests.harness.behaviours import answer_after, json_ok
from tests.harness.clocks import NEVER_S
from tests.harness.messages import chat, completion
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

LIMITED = "Authorization: Bearer acme-key"
PRIVATE, OPEN = "private text", "open text"
BOTH = ("eu", "us")


def write_keys(path: Path, *allowed: str) -> Keys:
    line = KeyLine(name="acme", hash=hash_of(b"acme-key"), allowed_regions=allowed)
    path.write_text(line_of(line) + "\n")
    return Keys(file=str(path))


class TwoRegions:
    """A running router in region `eu`, with one engine in `eu` and one in `us`."""

    def __init__(self, router: Router, keys: Path, eu: HostileReplica, us: HostileReplica) -> None:
        self.router = router
        self.eu = eu
        self.us = us
        self._keys = keys

    async def limits(self, *allowed: str) -> None:
        """A reload limits the key to other regions."""
        write_keys(self._keys, *allowed)
        await self.router.app.reload()

    async def begins(self, text: str, *fields: str) -> asyncio.Task[Any]:
        """Sends a request, and waits until it is at a replica or in the queue."""
        exchanges = self.router.app.parts.dispatcher.exchanges
        before = len(exchanges)
        data = chat(*fields, messages=[{"role": "user", "content": text}])
        task = asyncio.create_task(self.router.ask(data, "POST"))
        await eventually(lambda: len(exchanges) > before, "the request has arrived")
        return task

    def waits(self) -> bool:
        queue = self.router.app.parts.queue
        return queue is not None and queue.pools.waiting == 1


@asynccontextmanager
async def two_regions(
    folder: Path, eu: Behaviour, us: Behaviour, allowed: tuple[str, ...] = BOTH, **config: Any
) -> AsyncIterator[TwoRegions]:
    near, far = HostileReplica(eu), HostileReplica(us)
    for replica in (near, far):
        replica.start()
    replicas = (
        Replica(url=near.url, id="eu-1", region="eu", max_inflight=1),
        Replica(url=far.url, id="us-1", region="us", max_inflight=1, engine="vllm"),
    )
    path = folder / "keys.jsonl"
    settings = {"region": "eu", "keys": write_keys(path, *allowed), **config}
    try:
        async with running(replicas=replicas, **settings) as router:
            yield TwoRegions(router, path, near, far)
    finally:
        for replica in (near, far):
            await replica.stop()


def texts(replica: HostileReplica) -> list[str]:
    """The prompts of the chats that a replica has received."""
    chats = [one for one in replica.requests if one.target == "/v1/chat/completions"]
    return [json.loads(one.body)["messages"][0]["content"] for one in chats]


def after(go: asyncio.Event) -> Behaviour:
    return answer_after(go, completion())


@scenario
async def test_a_waiting_request_gets_the_new_regions_of_its_key(tmp_path: Path) -> None:
    eu_may_end, us_may_end = asyncio.Event(), asyncio.Event()
    async with two_regions(tmp_path, after(eu_may_end), after(us_may_end)) as world:
        others = [await world.begins(OPEN), await world.begins(OPEN, "x-region: us")]
        waiting = await world.begins(PRIVATE, LIMITED)
        await eventually(world.waits, "the request waits")
        await world.limits("eu")
        us_may_end.set()
        await eventually(lambda: others[1].done(), "the far replica is free")
        await asyncio.sleep(0.1)
        assert world.waits() and texts(world.us) == [OPEN]
        eu_may_end.set()
        assert [(await task).status for task in (*others, waiting)] == [200] * 3
        assert texts(world.eu) == [OPEN, PRIVATE]


@pytest.mark.parametrize("changes", ["key", "replica"])
@scenario
async def test_a_request_that_connects_is_not_sent_to_a_region_that_was_removed(
    tmp_path: Path, changes: str
) -> None:
    is_resolved = asyncio.Event()

    async def resolve() -> list[str]:
        await is_resolved.wait()
        return ["127.0.0.1"]

    async with two_regions(tmp_path, json_ok, json_ok) as world:
        fleet = world.router.app.parts.fleet
        pool = fleet.replicas["us-1"].pool
        pool.address.resolve = resolve
        task = await world.begins(PRIVATE, LIMITED, "x-region: us")
        await eventually(lambda: pool.waiting == 1, "the request waits for a connection")
        if changes == "key":
            await world.limits("eu")
        else:
            router = world.router
            moved = router.at(1, region="asia")
            router.change(replicas=(router.at(0), moved))
            await router.app.reload()
        is_resolved.set()
        assert (await task).status == 200
        assert (texts(world.eu), texts(world.us)) == ([PRIVATE], [])
        (line,) = await world.router.log()
        assert [replica for replica, *_ in line["tried"]] == ["us-1", "eu-1"]
        assert fleet.replicas["us-1"].health.failures == 0, "the replica is not blamed"


@scenario
async def test_the_connection_is_closed_although_the_end_of_its_attempt_raises(
    tmp_path: Path,
) -> None:
    is_resolved = asyncio.Event()

    async def resolve() -> list[str]:
        await is_resolved.wait()
        return ["127.0.0.1"]

    async with two_regions(tmp_path, json_ok, json_ok) as world:
        fleet = world.router.app.parts.fleet
        pool, hooks = fleet.replicas["us-1"].pool, fleet.hooks
        pool.address.resolve = resolve
        task = await world.begins(PRIVATE, LIMITED, "x-region: us")
        await eventually(lambda: pool.waiting == 1, "the request waits for a connection")
        await world.limits("eu")
        room = hooks.room

        def raises(replica: object) -> None:
            hooks.room = room
            raise RuntimeError("a defect")

        hooks.room = raises
        is_resolved.set()
        assert (await task).status == 500
        assert hooks.room is room
        await eventually(lambda: not pool.all, "the connection is closed")


@needs("kv_events")
@scenario
async def test_a_prompt_is_not_tokenized_in_a_region_that_was_removed(tmp_path: Path) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def tokenizes_forever(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if request.target == "/tokenize":
                asked.set()
                await connection.expect_close()
                closed.set()
                return
            await connection.send(completion())

    prefix = Prefix(exact=True, tokens_wait_s=NEVER_S)
    async with two_regions(tmp_path, json_ok, tokenizes_forever, ("us",), prefix=prefix) as world:
        tokens = world.router.app.parts.addons["kv_events"].tokens
        assert tokens is not None
        tokens._remote._timeout_s = NEVER_S
        task = await world.begins(PRIVATE * 100, LIMITED)
        await asked.wait()
        await world.limits("eu")
        await closed.wait()
        assert (await task).status == 200
        assert (texts(world.eu), texts(world.us)) == ([PRIVATE * 100], [])
