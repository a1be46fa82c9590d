"""A name may stand for several models, or for a model in several pools."""

import asyncio
import json
from typing import Any

from router.config.model import Replica
from tests.faults.names.engines import Engine, settings
from tests.harness.messages import chat, request
from tests.harness.running import running, scenario

REQUESTS = 400


def pools(*engines: tuple[Engine, str]) -> dict[str, Any]:
    """Settings of a fleet in which each engine is in a pool."""
    for engine, _ in engines:
        engine.start()
    replicas = tuple(
        Replica(url=engine.url, id=f"r{number}", pool=pool)
        for number, (engine, pool) in enumerate(engines)
    )
    return {"replicas": replicas}


def split(stable: float, canary: float) -> dict[str, Any]:
    targets = [{"pool": "stable", "weight": stable}, {"pool": "canary", "weight": canary}]
    return settings(models={"m": {"targets": targets}}, pools={"stable": {}, "canary": {}})


@scenario
async def test_pools_get_their_shares_and_keep_their_sessions() -> None:
    stable, canary, both = Engine("m"), Engine("m"), Engine("m")
    fleet = pools((stable, "stable"), (canary, "canary"), (both, ""))
    async with running(stable, canary, both, **fleet, **split(75, 25)) as router:
        client = await router.client()
        for number in range(REQUESTS):
            await client.send(chat(f"x-session-id: s{number % 200}"))
            assert (await client.recv_response()).status == 200
        sessions = [
            {name for request in engine.requests for name in request.all("x-session-id")}
            for engine in (stable, canary)
        ]
        assert not sessions[0] & sessions[1]
        assert len(stable.requests) + len(canary.requests) == REQUESTS
        assert not both.requests
        assert 0.15 < len(canary.requests) / REQUESTS < 0.35
        assert set(canary.asked) == set(stable.asked) == {"m"}
        names = json.loads((await router.ask(request("/v1/models"))).body)["data"]
        assert [each["id"] for each in names] == ["m"]


@scenario
async def test_a_pool_without_replicas_has_no_model() -> None:
    """The replicas of other pools must not get its requests."""
    engine = Engine("m")
    fleet = pools((engine, "stable"))
    rules = split(0, 1)
    classes = {"normal": {"absent": "100ms"}}
    rules |= settings(classes=classes)
    async with running(engine, **fleet, **rules) as router:
        assert (await router.ask()).status == 503
        assert not engine.requests


@scenario
async def test_a_reload_swaps_the_weights_under_load() -> None:
    stable, canary = Engine("m"), Engine("m")
    fleet = pools((stable, "stable"), (canary, "canary"))
    async with running(stable, canary, **fleet, **split(1, 0)) as router:

        async def ask(count: int) -> None:
            client = await router.client()
            for _ in range(count):
                await client.send(chat())
                assert (await client.recv_response()).status == 200

        await ask(5)
        assert not canary.requests
        router.change(**split(0, 1))
        asking = [asyncio.create_task(ask(20)) for _ in range(4)]
        await asyncio.sleep(0)
        await router.app.reload()
        await asyncio.gather(*asking)
        before = len(stable.requests)
        await ask(5)
        assert len(stable.requests) == before
