"""Requests without content leave a replica that was ejected because it shows no work.

They are sent to another replica as if their connection were lost: within the retry budget, and
never if a second loss would show that the request itself stops replicas.
"""

import asyncio
from typing import Any

import pytest

from tests.faults.replicas.test_replica_hangs_and_answers_probes import Engine, breaker, is_known
from tests.harness.behaviours import hang, sse_tokens
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, post_json, token
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

HEALTH = {"eject_base_s": 3600.0, "slow_start_s": 0.0}
STREAM = chat(stream=True)
RESPONSES = post_json("/v1/responses", {"model": "m", "input": "hello", "stream": True})


def still() -> Engine:
    """An engine whose totals do not grow by themselves."""
    engine = Engine()
    engine.counts = False
    return engine


async def hangs(router: Router, engine: Engine, stream: bool = True) -> None:
    while not engine.asked:
        await router.ask(chat(stream=stream))
    engine.generated += 10
    seen = engine.scrapes
    await eventually(lambda: engine.scrapes > seen + 1, "the totals were read")
    engine.hangs = True


def tried(line: dict[str, Any]) -> list[list[str]]:
    return [record[:3] for record in line["tried"]]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("policy", ["round_robin", "least_load"])
@virtual_scenario
async def test_they_are_answered_by_another(stream: bool, policy: str) -> None:
    engine, other = still(), Engine()
    replicas = (engine.replica(), other.replica())
    async with running(*replicas, policy=policy, health=HEALTH) as router:
        await hangs(router, engine, stream)
        before = len(router.lines())
        answers = await asyncio.gather(*(router.ask(chat(stream=stream)) for _ in range(6)))
        assert [answer.status for answer in answers] == [200] * 6
        assert all(answer.complete for answer in answers)
        await eventually(lambda: len(router.lines()) >= before + 6, "log lines")
        moved = [tried(line) for line in router.lines() if line["attempts"] > 1]
        assert moved
        assert moved == [[["r0", "primary", "replica_stalled"], ["r1", "retry", "ok"]]] * len(moved)
        assert breaker(router) == "open"


async def stay(router: Router, engine: Engine, count: int) -> None:
    """Check that this many requests stay at the engine while it is polled for a long time."""
    seen = engine.scrapes
    await eventually(lambda: engine.scrapes > seen + 20, "polls")
    assert router.app.replicas()[0]["inflight"] == count
    assert breaker(router) == "open"


@virtual_scenario
async def test_one_that_may_have_an_effect_stays() -> None:
    engine = still()
    async with running(
        engine.replica(), sse_tokens(), policy="round_robin", health=HEALTH
    ) as router:
        await hangs(router, engine)
        clients = [await router.send(RESPONSES) for _ in range(4)]
        await eventually(lambda: breaker(router) == "open", "ejected")
        await stay(router, engine, 2)
        for client in clients:
            client.rst()


@pytest.mark.parametrize(
    "retry", [{"budget": 0.0, "budget_min": 0}, {"attempts": 1}], ids=["budget", "attempts"]
)
@virtual_scenario
async def test_the_retry_settings_apply(retry: dict[str, Any]) -> None:
    engine = still()
    async with running(
        engine.replica(), sse_tokens(), policy="round_robin", health=HEALTH, retry=retry
    ) as router:
        await hangs(router, engine)
        clients = [await router.send(STREAM) for _ in range(4)]
        await eventually(lambda: breaker(router) == "open", "ejected")
        await stay(router, engine, 2)
        for client in clients:
            client.rst()


@virtual_scenario
async def test_a_request_that_was_lost_before_stays() -> None:
    """Its first replica reset the connection. It may stop each replica that it reaches."""
    engine = still()
    poison = chat(stream=True, user="poison")

    async def resets_poison(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if b"poison" in bytes(request.body):
                connection.rst()
                return
            await connection.send(SSE_HEAD, chunk(token("t")), chunk(DONE), LAST_CHUNK)

    async with running(
        engine.replica(), resets_poison, policy="round_robin", health=HEALTH
    ) as router:
        await hangs(router, engine)
        clients = [await router.send(poison) for _ in range(4)]
        await eventually(lambda: breaker(router) == "open", "ejected")
        # Two requests began at the engine that hangs, are moved, and fail. The other two were lost
        # before, and stay there.
        await eventually(lambda: router.app.replicas()[0]["inflight"] == 2, "moved")

        def lost() -> list[dict[str, Any]]:
            return [line for line in router.lines() if line["attempts"] > 1]

        await eventually(lambda: len(lost()) == 2, "two log lines")
        assert [tried(line) for line in lost()] == [
            [["r0", "primary", "replica_stalled"], ["r1", "retry", "replica_reset"]]
        ] * 2
        await stay(router, engine, 2)
        for client in clients:
            client.rst()


@virtual_scenario
async def test_nothing_moves_if_no_other_replica_is_left() -> None:
    engine = still()
    async with running(engine.replica(), health=HEALTH) as router:
        await is_known(router, engine)
        engine.hangs = True
        client = await router.send(STREAM)
        seen = engine.scrapes
        await eventually(lambda: engine.scrapes > seen + 30, "polls")
        assert breaker(router) != "open"
        assert router.app.replicas()[0]["inflight"] == 1
        client.rst()


@virtual_scenario
async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    """The second replica accepts the moved requests and hangs, too."""
    engine = still()
    second = HostileReplica(hang)
    async with running(engine.replica(), second, policy="round_robin", health=HEALTH) as router:
        await is_known(router, engine)
        engine.hangs = True
        clients = [await router.send(STREAM) for _ in range(4)]
        await eventually(lambda: breaker(router) == "open", "ejected")
        await eventually(lambda: len(second.requests) >= 3, "moved")
        for client in clients:
            client.rst()
        await router.quiet()
