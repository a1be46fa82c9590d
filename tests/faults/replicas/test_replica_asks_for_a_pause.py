"""Many 429s or 503s from one replica: only that replica is paused, and it is not ejected."""

import asyncio

import pytest

from tests.harness import kit

FULL = {"error": {"message": "full", "type": "overloaded", "param": None, "code": None}}
OFF = {"backoff_s": 0.0}


def breakers(router: kit.Router) -> list[str]:
    return [row["breaker"] for row in router.app.replicas()]


@pytest.mark.parametrize("status", [429, 503])
@kit.scenario
async def test_it_is_spared_as_long_as_it_asks(status: int) -> None:
    busy = kit.HostileReplica(kit.answer(kit.json_response(FULL, status, "Retry-After: 30")))
    async with kit.running(
        busy, kit.json_ok, health={"eject_after": 1}, retry=OFF, policy="round_robin"
    ) as router:
        for _ in range(20):
            assert (await router.ask(kit.chat())).status == 200
        assert len(busy.requests) == 1
        assert breakers(router) == ["closed", "closed"]
        spared, other = router.app.replicas()
        assert 20 < spared["busy_s"] <= 30
        assert other["busy_s"] == 0
        lines = await router.log(20)
        tried = [record for line in lines for record in line["tried"] if record[0] == "r0"]
        assert [record[1:3] for record in tried] == [["primary", "replica_busy"]]


@kit.scenario
async def test_a_stream_that_says_so_counts_as_well() -> None:
    told = kit.event({"error": {"message": "full", "type": "overloaded", "code": 503}})
    busy = kit.HostileReplica(
        kit.answer(kit.SSE_HEAD + kit.chunk(told) + kit.chunk(kit.DONE) + kit.LAST_CHUNK)
    )
    async with kit.running(busy, kit.json_ok, retry=OFF, policy="round_robin") as router:
        assert (await router.ask(kit.chat(stream=True))).status == 200
        assert router.app.parts.fleet.replicas["r0"].health.refusals == 1


@kit.scenario
async def test_the_last_one_is_asked_whatever_it_said() -> None:
    """The client gets the last replica's answer, because the router has no better answer."""
    busy = kit.HostileReplica(kit.answer(kit.json_response(FULL, 503, "Retry-After: 30")))
    async with kit.running(busy) as router:
        for _ in range(3):
            got = await router.ask(kit.chat())
            assert (got.status, got.header("retry-after")) == (503, "30")
        assert len(busy.requests) == 3


@kit.scenario
async def test_requests_that_are_refused_at_once_all_go_to_a_replica_with_capacity() -> None:
    """The refusals of one replica need no retry budget, however many come at once."""
    together = 6  # more than `retry.budget_min`
    arrived, all_arrived = 0, asyncio.Event()

    async def full(connection: kit.ReplicaConnection) -> None:
        nonlocal arrived
        while await connection.recv_request():
            arrived += 1
            if arrived == together:
                all_arrived.set()
            await all_arrived.wait()
            await connection.send(kit.json_response(FULL, 429, "Retry-After: 1"))

    async with kit.running(full, kit.json_ok, policy="round_robin") as router:
        answers = await asyncio.gather(*[router.ask(kit.chat()) for _ in range(2 * together)])
        assert [one.status for one in answers] == [200] * len(answers)
        assert arrived == together


@pytest.mark.parametrize("status", [429, 503])
@kit.scenario
async def test_every_replica_is_busy(status: int) -> None:
    busy = kit.answer(kit.json_response(FULL, status, "Retry-After: 7"))
    async with kit.running(busy, busy) as router:
        got = await router.ask(kit.chat())
        assert got.status in (429, 503)
        assert int(got.header("retry-after") or "0") > 0
        assert await router.reason() == "replica_busy"


@kit.routed(kit.answer(kit.json_response(FULL, 429)))
async def test_a_429_without_retry_after_is_the_clients(router: kit.Router) -> None:
    """A 429 without Retry-After is the engine's answer to this client, and is passed on
    unchanged.
    """
    got = await router.ask(kit.chat())
    assert got.status == 429
    assert got.json() == FULL
