"""Discovery changes members and regions while a request of a limited key waits for a connection.

The new region of each replica is in force before the requests that wait for a connection to a
removed replica go to another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Prefix, Replica
from tests.addons.needed import needs
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
from tests.harness.clocks import NEVER_S
from tests.harness.messages import chat, completion
from tests.harness.queueing import of_each
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario


class Waiting:
    """A request of the limited key that waits for a connection to the replica r0 in `us`."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self._is_resolved = asyncio.Event()

    async def begin(self) -> asyncio.Task[Any]:
        pool = self.router.app.parts.fleet.replicas["r0"].pool
        pool.address.resolve = self._resolve
        data = chat(LIMITED, "x-region: us", messages=[{"role": "user", "content": PRIVATE}])
        task = asyncio.create_task(self.router.ask(data, "POST"))
        await eventually(lambda: pool.waiting == 1, "the request waits for a connection")
        return task

    async def _resolve(self) -> list[str]:
        await self._is_resolved.wait()
        return ["127.0.0.1"]

    def resolved(self) -> None:
        self._is_resolved.set()

    def regions(self) -> dict[str, str]:
        return {r.id: r.region for r in self.router.app.parts.fleet.replicas.values()}


@asynccontextmanager
async def three_engines(first: Behaviour = json_ok) -> AsyncIterator[list[HostileReplica]]:
    engines = [HostileReplica(behave) for behave in (first, json_ok, json_ok)]
    for engine in engines:
        engine.start()
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.stop()


@asynccontextmanager
async def in_front_of(folder: Path, file: Path, **config: Any) -> AsyncIterator[Waiting]:
    """A router in `eu` whose key may use `eu` and `us`; r0 is in `us`, and r1 is in `eu`."""
    keys = write_keys(folder / "keys.jsonl", *BOTH)
    async with running(discovery=rules(file), region="eu", keys=keys, **config) as router:
        waiting = Waiting(router)
        assert waiting.regions() == {"r0": "us", "r1": "eu"}
        assert states(router) == {"r0": "ready", "r1": "ready"}
        yield waiting


@pytest.mark.parametrize("by", ["file", "reload"])
def test_a_request_that_leaves_a_removed_replica_knows_the_new_regions(
    tmp_path: Path, by: str
) -> None:
    """r0 leaves, r1 moves out of the allowed regions, and r2 joins, all at once."""
    file = tmp_path / "replicas.json"

    @scenario
    async def story() -> None:
        async with three_engines() as (first, second, third):
            known = Replica(url=first.url, id="r0", region="us")
            stays = {"url": second.url, "id": "r1"}
            listed: list[dict[str, str]] = [{"url": first.url, "id": "r0", "region": "us"}, stays]
            write(file, *(listed if by == "file" else [stays]))
            config = {} if by == "file" else {"replicas": (known,)}
            # The request may not be refused because the first probe of r2 is late.
            classes = of_each(absent_s=8.0)
            async with in_front_of(tmp_path, file, classes=classes, **config) as waiting:
                router = waiting.router
                # r1 has an idle connection, which could be used at once.
                near = chat(messages=[{"role": "user", "content": OPEN}])
                assert (await router.ask(near, "POST")).status == 200
                task = await waiting.begin()
                if by == "file":
                    new = {"url": third.url, "id": "r2", "region": "us"}
                    write(file, {**stays, "region": "asia"}, new)
                else:
                    new_one = Replica(url=third.url, id="r2", region="us")
                    router.change(replicas=(new_one,), region="asia")
                    await router.app.reload()
                await eventually(
                    lambda: waiting.regions() == {"r1": "asia", "r2": "us"}, "the new fleet"
                )
                assert (await task).status == 200
                sent = [texts(engine) for engine in (first, second, third)]
                assert sent == [[], [OPEN], [PRIVATE]]
                line = (await router.log(2))[1]
                assert [replica for replica, *_ in line["tried"]] == ["r0", "r2"]
                waiting.resolved()

    story()


def test_a_request_that_connects_is_not_sent_to_a_replica_that_a_file_moves(
    tmp_path: Path,
) -> None:
    file = tmp_path / "replicas.json"

    @scenario
    async def story() -> None:
        async with three_engines() as (first, second, _):
            moves, stays = {"url": first.url, "id": "r0"}, {"url": second.url, "id": "r1"}
            write(file, {**moves, "region": "us"}, stays)
            async with in_front_of(tmp_path, file) as waiting:
                task = await waiting.begin()
                replica = waiting.router.app.parts.fleet.replicas["r0"]
                write(file, {**moves, "region": "asia"}, stays)
                await eventually(lambda: replica.region == "asia", "the new region")
                waiting.resolved()
                assert (await task).status == 200
                assert (texts(first), texts(second)) == ([], [PRIVATE])
                assert waiting.router.app.parts.fleet.replicas["r0"] is replica
                assert replica.health.failures == 0, "the replica is not blamed"

    story()


@needs("kv_events")
def test_a_prompt_is_not_tokenized_at_a_replica_that_a_file_moves(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"

    @scenario
    async def story() -> None:
        asked, closed = asyncio.Event(), asyncio.Event()

        async def tokenizes_forever(connection: ReplicaConnection) -> None:
            while request := await connection.recv_request():
                if request.target == "/tokenize":
                    asked.set()
                    await connection.expect_close()
                    closed.set()
                    return
                await connection.send(completion())

        async with three_engines(tokenizes_forever) as (first, second, _):
            moves = {"url": first.url, "id": "r0", "engine": "vllm"}
            stays = {"url": second.url, "id": "r1", "engine": "tgi"}  # It cannot tokenize.
            write(file, {**moves, "region": "us"}, stays)
            prefix = Prefix(exact=True, tokens_wait_s=NEVER_S)
            async with in_front_of(tmp_path, file, prefix=prefix) as waiting:
                tokens = waiting.router.app.parts.addons["kv_events"].tokens
                assert tokens is not None
                tokens._remote._timeout_s = NEVER_S
                text = PRIVATE * 100
                data = chat(LIMITED, messages=[{"role": "user", "content": text}])
                task = asyncio.create_task(waiting.router.ask(data, "POST"))
                await asked.wait()
                write(file, {**moves, "region": "asia"}, stays)
                await closed.wait()
                assert (await task).status == 200
                assert (texts(first), texts(second)) == ([], [text])

    story()
