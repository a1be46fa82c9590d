"""Ejection and panic per model: a healthy pool of another model does not help a request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.names.engines import Engine
from tests.faults.process.metrics import number
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario

OFF = {"backoff_s": 0.0}


@asynccontextmanager
async def fleet(*engines: Engine, **health: object) -> AsyncIterator[Router]:
    rules = {"eject_after": 5, "eject_base_s": 3600.0, "slow_start_s": 0.0, **health}
    async with running(*engines, health=rules, retry=OFF, policy="round_robin") as router:
        yield router


def ask(model: str) -> bytes:
    return chat(model=model)


def states(router: Router) -> list[str]:
    return [str(replica["state"]) for replica in router.app.replicas()]


async def panic(router: Router, model: str) -> float:
    return await number(router.app.admin_port, "hedgerow_panic", model=model)


@scenario
async def test_the_only_replica_of_a_model_stays() -> None:
    alone, *others = Engine("a"), Engine("b"), Engine("b"), Engine("b")
    async with fleet(alone, *others) as router:
        alone.status = 500
        for _ in range(12):
            # Each request gets the engine's own 500.
            assert (await router.ask(ask("a"))).status == 500
        assert states(router) == ["ready"] * 4
        alone.status = 200
        assert (await router.ask(ask("a"))).status == 200
        for _ in range(6):
            assert (await router.ask(ask("b"))).status == 200


@scenario
async def test_panic_mode_uses_only_ejected_replicas_of_the_model() -> None:
    """One of four replicas is ejected and two are down: the last one would be overloaded."""
    engines = [Engine("a") for _ in range(4)]
    apart = [Engine("b"), Engine("b")]
    rules = {"eject_after": 1, "panic_share": 0.5, "interval_s": 0.05, "fall": 1}
    async with fleet(*engines, *apart, **rules) as router:
        assert (await panic(router, "a"), await panic(router, "b")) == (0.0, 0.0)
        engines[0].status = apart[0].status = 500
        while states(router)[0] != "ejected":
            await router.ask(ask("a"))
        while states(router)[4] != "ejected":
            await router.ask(ask("b"))
        engines[0].status = apart[0].status = 200
        before = len(engines[0].requests)
        for _ in range(6):
            assert (await router.ask(ask("a"))).status == 200
        assert len(engines[0].requests) == before  # three of four replicas are fit: no panic
        for engine in engines[1:3]:
            engine.control.status = 500
        await eventually(lambda: states(router)[1:3] == ["down", "down"], "two are down")
        assert (await panic(router, "a"), await panic(router, "b")) == (1.0, 0.0)
        others = len(apart[0].requests)
        for _ in range(6):
            assert (await router.ask(ask("a"))).status == 200
            assert (await router.ask(ask("b"))).status == 200
        assert len(engines[0].requests) > before
        assert len(apart[0].requests) == others
        for engine in engines[1:3]:
            engine.control.status = 200
        await eventually(lambda: "down" not in states(router), "all are up")
        assert await panic(router, "a") == 0.0
