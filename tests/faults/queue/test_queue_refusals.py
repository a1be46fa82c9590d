"""Every refusal of the queue: a status, a machine-readable reason, and Retry-After."""

from __future__ import annotations

import pytest

from router.config.model import Classes, Keys, Queue, QueueLimits
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.queueing import BY_HAND, ONE, Turnstile, of_each, of_normal, queue, send, waiting
from tests.harness.reading import Response
from tests.harness.replica import eventually
from tests.harness.running import assert_error, running, virtual_scenario

TYPES = {408: "invalid_request_error", 429: "rate_limit_error", 503: "server_error"}


def assert_told(answer: Response, reason: Reason, status: int) -> None:
    """The refusal has the form that OpenAI's clients understand: shape, type, code, and a time to
    wait.
    """
    assert_error(answer, reason, status)
    error = answer.error()
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == TYPES[status]
    assert error["param"] is None
    assert error["message"]
    assert 1 <= int(answer.header("retry-after") or 0) <= 600


FULL = [
    (queue(), of_normal(depth=2), Reason.QUEUE_FULL),
    (queue(limits=QueueLimits(flow=2)), Classes(), Reason.QUEUE_FLOW_FULL),
    (queue(limits=QueueLimits(bytes=300)), Classes(), Reason.QUEUE_BYTES_FULL),
]


@pytest.mark.parametrize(("rules", "classes", "reason"), FULL)
@pytest.mark.parametrize("stream", [False, True])
@virtual_scenario
async def test_full_is_429_and_only_for_whom_it_is_full(
    rules: Queue, classes: Classes, reason: Reason, stream: bool
) -> None:
    turnstile = Turnstile()
    keys = Keys(names_users=True)
    async with running(turnstile, replica=ONE, queue=rules, classes=classes, keys=keys) as router:
        clients = [await send(router, "first", queued=False)]
        clients += [await send(router, tag, user="one") for tag in ("a", "b")]
        refused = await router.send(chat(user="one", stream=stream))
        assert_told(await refused.recv_response(), reason, 429)
        if reason is Reason.QUEUE_FULL:
            clients.append(await send(router, "urgent", user="one", priority="high"))
        elif reason is Reason.QUEUE_FLOW_FULL:
            clients.append(await send(router, "other", user="two"))
        turnstile.open(len(clients))
        for client in clients:
            assert (await client.recv_response()).status == 200
        turnstile.open()
        await refused.send(chat(tag="again"))  # the refused client's connection is still usable
        assert (await refused.recv_response()).status == 200
        reasons = [line["reason"] for line in await router.log(len(clients) + 2)]
        assert reasons.count(reason.value) == 1


@virtual_scenario
async def test_what_is_longer_than_a_class_may_wait_is_503() -> None:
    turnstile = Turnstile()
    classes = of_normal(wait_s=0.6, starvation_s=0.3)
    async with running(turnstile, replica=ONE, queue=queue(), classes=classes) as router:
        first = await send(router, "first", queued=False)
        patient = await send(router, "patient", priority="batch")
        second = await send(router, "second")
        assert_told(await second.recv_response(), Reason.QUEUE_TIMEOUT, 503)
        assert waiting(router) == 1, "another class has its own time"
        turnstile.open(2)
        for client in (first, patient):
            assert (await client.recv_response()).status == 200


@virtual_scenario
async def test_what_is_longer_than_its_client_waits_is_408() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        assert_told(
            await router.ask(chat("x-request-timeout-ms: 100")), Reason.DEADLINE_PASSED, 408
        )
        turnstile.open()
        assert (await first.recv_response()).status == 200


@virtual_scenario
async def test_without_a_replica_waiting_and_new_requests_get_503() -> None:
    turnstile = Turnstile()
    async with running(
        turnstile,
        replica=ONE,
        queue=queue(),
        classes=of_each(absent_s=0.3),
        quiet_control_plane=BY_HAND,
    ) as router:
        first = await send(router, "first", queued=False)
        waits = await send(router, "waits")
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        replica.health.up = False
        fleet.rebuild()
        comes = await router.send(chat(tag="comes"))
        for client in (waits, comes):
            assert_told(await client.recv_response(), Reason.NO_REPLICA, 503)
        turnstile.open()
        # The first request was in the queue before.
        assert (await first.recv_response()).status == 200
        assert turnstile.tags == ["first"]


@virtual_scenario
async def test_a_fleet_that_returns_in_time_serves_waiting_requests() -> None:
    async with running(json_ok, queue=queue(), quiet_control_plane=BY_HAND) as router:
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        replica.health.up = False
        fleet.rebuild()
        client = await router.send(chat())
        await eventually(lambda: waiting(router) == 1, "it waits")
        replica.health.up = True
        fleet.rebuild()
        assert (await client.recv_response()).status == 200
