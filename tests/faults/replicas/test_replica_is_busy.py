"""A replica that answers 429 or 503 is paused, not ejected; others serve in the meantime."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.behaviours import answer, json_ok
from tests.harness.messages import chat, json_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

FULL = {"error": {"message": "full", "type": "overloaded", "param": None, "code": None}}


@pytest.mark.parametrize("status", [429, 503])
@scenario
async def test_another_replica_serves(status: int) -> None:
    busy = answer(json_response(FULL, status, "Retry-After: 1"))
    async with running(busy, json_ok, health={"eject_after": 1}, policy="round_robin") as router:
        for _ in range(4):
            assert (await router.ask(chat())).status == 200
        assert {line["reason"] for line in await router.log(4)} == {"ok"}


@scenario
async def test_requests_that_are_refused_at_once_all_go_to_a_replica_with_capacity() -> None:
    """The refusals of one replica need no retry budget, however many come at once."""
    together = 6  # more than `retry.budget_min`
    arrived, all_arrived = 0, asyncio.Event()

    async def full(connection: ReplicaConnection) -> None:
        nonlocal arrived
        while await connection.recv_request():
            arrived += 1
            if arrived == together:
                all_arrived.set()
            await all_arrived.wait()
            await connection.send(json_response(FULL, 429, "Retry-After: 1"))

    async with running(full, json_ok, policy="round_robin") as router:
        answers = await asyncio.gather(*[router.ask(chat()) for _ in range(2 * together)])
        assert [one.status for one in answers] == [200] * len(answers)
        assert arrived == together


@pytest.mark.parametrize("status", [429, 503])
@scenario
async def test_every_replica_is_busy(status: int) -> None:
    busy = answer(json_response(FULL, status, "Retry-After: 7"))
    async with running(busy, busy) as router:
        got = await router.ask(chat())
        assert got.status in (429, 503)
        assert int(got.header("retry-after") or "0") > 0
        assert await router.reason() == "replica_busy"


@scenario
async def test_a_429_without_retry_after_is_the_clients() -> None:
    """A 429 without Retry-After is the engine's answer to this client, and is passed on
    unchanged.
    """
    async with running(answer(json_response(FULL, 429))) as router:
        got = await router.ask(chat())
        assert got.status == 429
        assert got.json() == FULL
