"""A replica fails while all others are at their limits: the request waits for a free place."""

import asyncio

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import rst_after_request, until_closed
from tests.harness.messages import chat, completion, json_response
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, routed, running, virtual_scenario


async def is_busy(connection: ReplicaConnection) -> None:
    await connection.recv_request()
    await connection.send(json_response({"error": {"message": "busy"}}, 503))
    await until_closed(connection)


def holds(go: asyncio.Event) -> Behaviour:
    """Answer every request, but the first one only after `go`."""
    answered = 0

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal answered
        while await connection.recv_request():
            answered += 1
            if answered == 1:
                await go.wait()
            await connection.send(completion())

    return behave


@pytest.mark.parametrize("fails", [rst_after_request, is_busy])
@virtual_scenario
async def test_it_is_answered_when_there_is_room(fails: Behaviour) -> None:
    go = asyncio.Event()
    limits = {"max_inflight": 1}
    rules = {"policy": "round_robin", "retry": {"backoff_s": 0.0}}
    async with running(holds(go), fails, replica=limits, **rules) as router:
        first, second = await router.client(), await router.client()
        await first.send(chat())
        await eventually(lambda: len(router.replicas[0].requests) == 1, "the first is under way")
        await second.send(chat())
        await eventually(lambda: len(router.replicas[1].requests) == 1, "the second has failed")
        queue = router.app.parts.queue
        assert queue is not None
        await eventually(lambda: queue.pools.waiting == 1, "it waits for room")
        go.set()
        for client in (first, second):
            got = await client.recv_response("POST")
            assert got.status == 200, (got.body, router.lines())
        last = (await router.log(2))[-1]
        assert (last["attempts"], last["reason"]) == (2, "ok")


@routed(rst_after_request, virtual=True)
async def test_a_retry_does_not_wait_for_a_lost_fleet(router: Router) -> None:
    assert_error(await router.ask(chat(), "POST"), Reason.REPLICA_RESET)
