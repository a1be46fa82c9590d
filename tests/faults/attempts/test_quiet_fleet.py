"""Urgent requests in a fleet without other traffic, of which one replica hangs.

The router is fresh, so it knows no usual times, and its hedging budget is empty. The other replicas
are idle, so copies need neither.
"""

import asyncio
import json
from typing import Any

import pytest

from router.config.model import Hedging, Priority
from router.observe.hedge_counts import Cause
from tests.faults.attempts.test_two_copies import both_asked, says
from tests.harness import kit

REQUESTS = 5
# Requests go to the replicas in turn, so that some of them reach the replica that hangs.
SHIPPED: dict[str, Any] = {"priority": Priority(ceiling="critical"), "policy": "round_robin"}
FIXED = {**SHIPPED, "hedging": Hedging(policy="fixed")}


def urgent(urgency: str, stream: bool) -> bytes:
    return kit.chat(f"x-priority: {urgency}", stream=stream)


def posts(replica: kit.HostileReplica) -> int:
    return sum(request.method == "POST" for request in replica.requests)


async def hedged(router: kit.Router, requests: int) -> int:
    """Wait for the log lines of so many requests, and return how many of them a copy answered."""
    lines = await router.log(requests)
    assert {line["reason"] for line in lines} == {"ok"}, lines
    won = [line for line in lines if ["hedge", "ok"] in [one[1:3] for one in line["tried"]]]
    return len(won)


@pytest.mark.parametrize("rules", [SHIPPED, FIXED], ids=["shipped", "fixed"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("urgency", ["critical", "high"])
@pytest.mark.parametrize("replicas", [2, 3])
@kit.virtual_scenario
async def test_each_urgent_request_is_answered_though_a_replica_hangs(
    replicas: int, urgency: str, stream: bool, rules: dict[str, Any]
) -> None:
    slow = kit.HostileReplica(kit.hang)
    async with kit.running(slow, *[kit.chat_either] * (replicas - 1), **rules) as router:
        for _ in range(REQUESTS):
            assert (await router.ask(urgent(urgency, stream))).status == 200
        assert slow.requests, "no request reached the replica that hangs"
        assert await hedged(router, REQUESTS) == len(slow.requests)


@pytest.mark.parametrize(
    "slow", [kit.hang, kit.stream_then_hang(kit.role())], ids=["nothing", "a head and a role"]
)
@kit.virtual_scenario
async def test_a_burst_is_answered_though_a_replica_hangs(slow: kit.Behaviour) -> None:
    hangs = kit.HostileReplica(slow)
    async with kit.running(hangs, kit.chat_either, **SHIPPED) as router:
        asked = [router.ask(urgent("high", True)) for _ in range(REQUESTS)]
        for got in await asyncio.gather(*asked):
            assert (got.status, got.events()[-1]) == (200, "[DONE]")
        assert hangs.requests
        assert await hedged(router, REQUESTS) == len(hangs.requests)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@kit.virtual_scenario
async def test_engines_without_metrics_are_protected_too(stream: bool) -> None:
    slow, quick = (
        kit.HostileReplica(kit.hang, kit.anonymous()),
        kit.HostileReplica(kit.chat_either, kit.anonymous()),
    )
    async with kit.running(slow, quick, **SHIPPED) as router:
        for _ in range(REQUESTS):
            assert (await router.ask(urgent("high", stream))).status == 200
        assert posts(slow)
        assert await hedged(router, REQUESTS) == posts(slow)


@kit.virtual_scenario
async def test_a_replica_that_stops_after_it_has_worked_is_noticed() -> None:
    """Polls show the tokens of earlier requests after the engine stopped."""
    has_stopped = asyncio.Event()

    async def until_it_stops(connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if has_stopped.is_set():
                continue
            if json.loads(bytes(request.body)).get("stream"):
                await connection.send(
                    kit.SSE_HEAD, kit.chunk(kit.token("t0")), kit.chunk(kit.DONE), kit.LAST_CHUNK
                )
            else:
                await connection.send(kit.completion())

    stops = kit.HostileReplica(until_it_stops)
    async with kit.running(stops, kit.chat_either, **SHIPPED) as router:
        for stream in (True, False) * 4:
            assert (await router.ask(urgent("high", stream))).status == 200
        before = posts(stops)
        assert before
        has_stopped.set()
        for stream in (True, False) * 3:
            assert (await router.ask(urgent("high", stream))).status == 200
        assert posts(stops) > before
        await router.log(14)


@kit.virtual_scenario
async def test_a_fleet_that_hangs_gets_at_most_one_copy_per_replica() -> None:
    replicas = [kit.HostileReplica(kit.hang) for _ in range(3)]
    async with kit.running(*replicas, **SHIPPED) as router:
        clients = [await router.send(urgent("high", True)) for _ in range(12)]
        counts = router.app.parts.context.hedger.metrics
        await kit.eventually(lambda: sum(counts.suppressed.values()) >= 24, "copies are considered")
        assert counts.fired <= len(replicas)
        for client in clients:
            client.rst()
        await router.quiet()
        assert counts.fired == counts.failed


@kit.virtual_scenario
async def test_a_class_can_have_two_copies_at_once() -> None:
    acts = [says("a"), says("b")]
    async with kit.running(*acts, hedging=Hedging(delay={"critical": 0.0}), **SHIPPED) as router:
        client = await router.send(urgent("critical", True))
        await both_asked(*acts)
        acts[1].go.set()
        assert (await client.recv_response("POST")).events()[-1] == "[DONE]"
        await acts[0].gone.wait()  # the loser is cancelled at its engine
        counts = router.app.parts.context.hedger.metrics
        assert (counts.fired, counts.causes[Cause.CLASS], counts.idle) == (1, 1, 1)
