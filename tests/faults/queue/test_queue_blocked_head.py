"""A request that waits for a full replica does not block requests for other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from router.config.model import Replica
from tests.harness.messages import chat
from tests.harness.queueing import Turnstile, of_each, queue, waiting
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, virtual_scenario

CROWD = 100


@asynccontextmanager
async def fleet_of(**models: tuple[str, ...]) -> AsyncIterator[tuple[Router, dict[str, Turnstile]]]:
    """A router in front of one replica per name, which serves these models, one request at a
    time.
    """
    turnstiles = {name: Turnstile() for name in models}
    replicas = [HostileReplica(turnstiles[name], models=models[name]) for name in models]
    for replica in replicas:
        replica.start()
    members = tuple(
        Replica(url=replica.url, id=name, models=models[name], max_inflight=1)
        for name, replica in zip(models, replicas, strict=True)
    )
    async with running(
        *replicas, replicas=members, queue=queue(), classes=of_each(absent_s=60.0)
    ) as router:
        yield router, turnstiles


async def ask(router: Router, model: str, **body: Any) -> Any:
    client = await router.send(chat(**{"model": model, "tag": model, **body}))
    return client


async def crowd(router: Router, model: str, count: int, **body: Any) -> list[Any]:
    """Send `count` requests, and return them when all of them wait."""
    before = waiting(router)
    clients = [await ask(router, model, **body) for _ in range(count)]
    await eventually(lambda: waiting(router) == before + count, f"{count} wait for {model}")
    return clients


async def served(clients: list[Any]) -> None:
    for client in clients:
        assert (await client.recv_response()).status == 200


@virtual_scenario
async def test_another_models_pool_knows_nothing_of_it() -> None:
    async with fleet_of(one=("m1",), two=("m2",)) as (router, turnstiles):
        stuck = [await ask(router, "m1")]
        await eventually(lambda: turnstiles["one"].tags == ["m1"], "the first replica is full")
        stuck += await crowd(router, "m1", CROWD)
        for _ in range(3):
            turnstiles["two"].open()
            await served([await ask(router, "m2")])
        assert waiting(router) == CROWD
        turnstiles["one"].open(CROWD + 1)
        await served(stuck)
        assert len(turnstiles["two"].tags) == 3


@virtual_scenario
async def test_in_one_pool_requests_for_other_replicas_are_not_blocked() -> None:
    """The head of the queue, and all behind it except the last, wait for the other replica."""
    async with fleet_of(one=("m1", "any"), two=("m2", "any")) as (router, turnstiles):
        stuck = [await ask(router, "m1", priority="high")]
        await eventually(lambda: turnstiles["one"].tags == ["m1"], "the first replica is full")
        stuck += await crowd(router, "m1", CROWD, priority="high")
        for model in ("m2", "any", "m2", "any"):
            turnstiles["two"].open()
            await served([await ask(router, model, priority="batch")])
        assert waiting(router) == CROWD
        # Both replicas are full, and a hundred more urgent requests wait for the other replica.
        others = [await ask(router, "m2")]
        await eventually(lambda: len(turnstiles["two"].tags) == 5, "the second is full")
        others += await crowd(router, "m2", 5)
        others += await crowd(router, "any", 5)
        turnstiles["two"].open(11)
        await served(others)
        assert waiting(router) == CROWD
        assert turnstiles["one"].tags == ["m1"]
        turnstiles["one"].open(CROWD + 1)
        await served(stuck)


@virtual_scenario
async def test_what_only_one_replica_can_answer_waits_alone() -> None:
    """A stored response is at a full replica; all other requests go to the other replica."""
    async with fleet_of(one=("m",), two=("m",)) as (router, turnstiles):
        fleet = router.app.parts.fleet
        fleet.response_affinity.learn("resp_1", "one")
        first = await ask(router, "m", previous_response_id="resp_1")
        await eventually(lambda: turnstiles["one"].tags == ["m"], "it is with its owner")
        stuck = await crowd(router, "m", 20, previous_response_id="resp_1")
        for _ in range(5):
            turnstiles["two"].open()
            await served([await ask(router, "m")])
        assert waiting(router) == 20
        assert turnstiles["one"].tags == ["m"]
        turnstiles["one"].open(21)
        await served([first, *stuck])
        assert len(turnstiles["two"].tags) == 5


@virtual_scenario
async def test_a_model_whose_replica_is_gone_blocks_no_other() -> None:
    async with fleet_of(one=("m1",), two=("m2",)) as (router, turnstiles):
        fleet = router.app.parts.fleet
        fleet.replicas["one"].health.up = False
        fleet.rebuild()
        stuck = await crowd(router, "m1", 20)
        turnstiles["two"].open(3)
        for _ in range(3):
            await served([await ask(router, "m2")])
        assert waiting(router) == 20
        fleet.replicas["one"].health.up = True
        fleet.rebuild()
        turnstiles["one"].open(20)
        await served(stuck)
        await asyncio.sleep(0)
