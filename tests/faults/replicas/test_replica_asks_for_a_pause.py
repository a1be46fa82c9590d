"""Many 429s or 503s from one replica: only that replica is paused, and it is not ejected."""

from __future__ import annotations

from time import monotonic

import pytest

from tests.harness.behaviours import answer, json_ok
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    event,
    json_response,
)
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import Router, running, scenario

FULL = {"error": {"message": "full", "type": "overloaded", "param": None, "code": None}}
OFF = {"backoff_s": 0.0}


def breakers(router: Router) -> list[str]:
    return [row["breaker"] for row in router.app.replicas()]


@pytest.mark.parametrize("status", [429, 503])
@scenario
async def test_it_is_spared_as_long_as_it_asks(status: int) -> None:
    busy = HostileReplica(answer(json_response(FULL, status, "Retry-After: 30")))
    async with running(
        busy, json_ok, health={"eject_after": 1}, retry=OFF, policy="round_robin"
    ) as router:
        for _ in range(20):
            assert (await router.ask(chat())).status == 200
        assert len(busy.requests) == 1
        assert breakers(router) == ["closed", "closed"]
        spared, other = router.app.replicas()
        assert 20 < spared["busy_s"] <= 30
        assert other["busy_s"] == 0
        lines = await router.log(20)
        tried = [record for line in lines for record in line["tried"] if record[0] == "r0"]
        assert [record[1:3] for record in tried] == [["primary", "replica_busy"]]


@scenario
async def test_without_retry_after_the_pause_is_short() -> None:
    is_full = True

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response(FULL, 503) if is_full else json_response({}))

    busy = HostileReplica(behave)
    async with running(busy, json_ok, retry=OFF, policy="round_robin") as router:
        began = monotonic()
        asked = 0
        while len(busy.requests) < 3:
            assert (await router.ask(chat())).status == 200
            asked += 1
        assert asked > 4  # without pauses, round robin would send it every second request
        assert monotonic() - began >= 0.8 * (0.1 + 0.2)  # the replica's pauses were respected
        health = router.app.parts.fleet.replicas["r0"].health
        assert (health.refusals, health.failures) == (3, 0)
        is_full = False
        while len(busy.requests) < 4:
            await router.ask(chat())
        assert health.refusals == 0
        assert breakers(router) == ["closed", "closed"]


@scenario
async def test_a_stream_that_says_so_counts_as_well() -> None:
    told = event({"error": {"message": "full", "type": "overloaded", "code": 503}})
    busy = HostileReplica(answer(SSE_HEAD + chunk(told) + chunk(DONE) + LAST_CHUNK))
    async with running(busy, json_ok, retry=OFF, policy="round_robin") as router:
        assert (await router.ask(chat(stream=True))).status == 200
        assert router.app.parts.fleet.replicas["r0"].health.refusals == 1


@scenario
async def test_the_last_one_is_asked_whatever_it_said() -> None:
    """The client gets the last replica's answer, because the router has no better answer."""
    busy = HostileReplica(answer(json_response(FULL, 503, "Retry-After: 30")))
    async with running(busy) as router:
        for _ in range(3):
            got = await router.ask(chat())
            assert (got.status, got.header("retry-after")) == (503, "30")
        assert len(busy.requests) == 3


@scenario
async def test_one_that_was_passed_over_is_asked_when_the_others_fail() -> None:
    has_trouble = False

    async def full_at_first(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            refusal = json_response(FULL, 503, "Retry-After: 30")
            await connection.send(completion() if has_trouble else refusal)

    async def dies_later(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if has_trouble:
                connection.rst()
                return
            await connection.send(completion())

    busy = HostileReplica(full_at_first)
    async with running(busy, dies_later, retry=OFF, policy="round_robin") as router:
        for _ in range(4):
            assert (await router.ask(chat())).status == 200
        assert len(busy.requests) == 1
        has_trouble = True
        assert (await router.ask(chat())).status == 200
        assert len(busy.requests) == 2
