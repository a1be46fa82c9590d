"""More requests than the engines can serve: each is served in turn, or refused before a 200.

With the shipped settings only the client ends a wait. If a time limit is configured or requested,
the refusal has its own status: the router does not send a 200 only to keep the client waiting.
"""

from __future__ import annotations

import asyncio

import pytest

from router.config.model import Classes, Preemption
from router.core.errors import Reason
from tests.addons.needed import needs
from tests.harness.behaviours import chat_either, in_turn, until_closed
from tests.harness.messages import chat
from tests.harness.queueing import (
    BY_HAND,
    ONE,
    Turnstile,
    counts,
    of_each,
    of_normal,
    queue,
    send,
    waiting,
)
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import assert_error, running, virtual_scenario

NORMAL, BATCH = 2, 4
EARLY = {"commit_after_s": 0.1}


@pytest.mark.parametrize("name", Classes.__struct_fields__)
def test_no_class_has_a_queue_timeout_unless_it_is_configured(name: str) -> None:
    assert getattr(Classes(), name).wait_s == 0.0


@virtual_scenario
async def test_a_crowd_is_served_whole_however_long_it_waits() -> None:
    """All former queue timeouts are set to almost zero here: a remaining one would expire."""
    turnstile = Turnstile()
    rules, classes = queue(policy="fair"), of_each(starvation_s=0.2)
    async with running(
        turnstile, replica=ONE, queue=rules, classes=classes, timeouts=EARLY
    ) as router:
        clients = [await send(router, "first", queued=False)]
        clients += [await send(router, str(n), stream=True) for n in range(40)]
        for client in clients[1:]:
            await client.recv_until(b": waiting")
        assert sum(counts(router, "promoted")) > 0
        turnstile.open(len(clients))
        for client in clients:
            answer = await client.recv_response()
            assert answer.status == 200
            assert "queue_timeout" not in bytes(answer.body).decode()
        assert sum(counts(router, "expired")) == 0


@pytest.mark.parametrize("limit", ["class", "deadline", "total"])
@virtual_scenario
async def test_a_stream_that_a_limit_may_refuse_gets_no_early_200(limit: str) -> None:
    turnstile = Turnstile()
    classes = Classes()
    timeouts, fields, reason = dict(EARLY), (), Reason.DEADLINE_PASSED
    if limit == "class":
        classes = of_normal(wait_s=0.6, starvation_s=0.3)
        reason = Reason.QUEUE_TIMEOUT
    elif limit == "deadline":
        fields = ("x-request-timeout-ms: 600",)
    else:
        timeouts["total_s"] = 0.6
        reason = Reason.TOTAL_TIMEOUT
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, timeouts=timeouts
    ) as router:
        first = await send(router, "first", queued=False)
        assert_error(await router.ask(chat(*fields, stream=True)), reason)
        turnstile.open()
        await first.recv_response()


@virtual_scenario
async def test_a_granted_stream_is_kept_awake_though_its_wait_was_limited() -> None:
    turnstile = Turnstile()
    classes = of_normal(wait_s=60.0, starvation_s=30.0)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, timeouts=EARLY
    ) as router:
        first = await send(router, "first", queued=False)
        second = await send(router, "second", stream=True)
        third = await send(router, "third", stream=True)
        await asyncio.sleep(0.4)
        turnstile.open()
        assert (await first.recv_response()).status == 200
        # The request is at a replica, which has sent nothing yet.
        await second.recv_until(b": waiting")
        assert not third.received
        turnstile.open(2)
        for client in (second, third):
            assert (await client.recv_response()).status == 200


@needs("preemption")
@virtual_scenario
async def test_a_stream_with_an_early_200_does_not_wait_under_its_limit_again() -> None:
    async def never(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await until_closed(connection)

    rules = queue(preemption=Preemption(enabled=True, after_s=0.3))
    classes = of_each(wait_s=60.0, starvation_s=5.0)
    behave = in_turn(never, then=chat_either)
    async with running(behave, replica=ONE, queue=rules, classes=classes, timeouts=EARLY) as router:
        batch = await send(router, "0", priority="batch", stream=True, queued=False)
        await batch.recv_until(b": waiting")
        assert counts(router, "preempted")[BATCH] == 0
        high = await send(router, "high", priority="high")
        await asyncio.sleep(0.6)
        assert counts(router, "preempted")[BATCH] == 0
        high.close()
        batch.close()
        await eventually(lambda: not router.busy(), "both are gone")


@virtual_scenario
async def test_while_the_fleet_is_gone_no_stream_is_promised_anything() -> None:
    turnstile = Turnstile()
    classes = of_each(absent_s=0.8)
    async with running(
        turnstile,
        replica=ONE,
        queue=queue(),
        classes=classes,
        timeouts=EARLY,
        quiet_control_plane=BY_HAND,
    ) as router:
        first = await send(router, "first", queued=False)
        waits = await send(router, "waits", stream=True)
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        replica.health.up = False
        fleet.rebuild()
        assert_error(await waits.recv_response(), Reason.NO_REPLICA)
        turnstile.open()
        assert (await first.recv_response()).status == 200


@virtual_scenario
async def test_a_deadline_behind_a_long_queue_is_refused_when_it_comes() -> None:
    """Once the queue knows its service rate, Retry-After is the time in which the queue becomes
    empty.
    """
    turnstile = Turnstile()
    rules = queue(policy="fifo", order="policy")
    async with running(turnstile, replica=ONE, queue=rules) as router:
        clients = [await send(router, "first", queued=False)]
        clients += [await send(router, str(n)) for n in range(60)]
        driver = router.app.parts.queue
        assert driver is not None
        drain = driver.pools.queues[0]._service_rate
        for rate in drain._rates:  # as if the request had waited for longer than a test may take
            rate.waited_s += 60.0
        turnstile.open(31)
        await eventually(lambda: waiting(router) == 29, "half of them are served")
        answer = await router.ask(chat("x-request-timeout-ms: 2000"))
        assert_error(answer, Reason.QUEUE_TOO_LONG, 429)
        assert 30 <= int(answer.header("retry-after") or 0) <= 120
        patient = await send(router, "patient")
        turnstile.open(31)
        for client in (*clients, patient):
            assert (await client.recv_response()).status == 200
