"""A pooled connection that dies while idle or when it is reused causes no error at the client.

A dead connection shows as a clean end, a reset on read or a failed write. In each case the request,
even a POST, is sent again on a new connection, and is executed once.
"""

import asyncio

import pytest

from tests.harness.behaviours import in_turn, json_ok
from tests.harness.messages import chat, completion, post_json
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import running, scenario


def dies(end: str, go: asyncio.Event) -> Behaviour:
    """Serve, and end the connection on a signal."""

    async def behave(connection: ReplicaConnection) -> None:
        serving = asyncio.create_task(json_ok(connection))
        await go.wait()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        if end == "rst":
            connection.rst()
        else:
            connection.close()

    return behave


@pytest.mark.parametrize("end", ["fin", "rst"])
@scenario
async def test_in_the_same_tick_as_a_request(end: str) -> None:
    go = asyncio.Event()
    async with running(in_turn(dies(end, go), then=json_ok)) as router:
        client = await router.send(chat())
        assert (await client.recv_response()).status == 200
        go.set()
        await client.send(chat())  # the request and the connection's end are ready in the same turn
        assert (await client.recv_response()).status == 200
        assert len(router.replica.requests) == 2
        assert {line["reason"] for line in await router.log(2)} == {"ok"}


@pytest.mark.parametrize("end", ["fin", "rst"])
@scenario
async def test_long_before_a_request(end: str) -> None:
    go = asyncio.Event()
    async with running(in_turn(dies(end, go), then=json_ok)) as router:
        assert (await router.ask(chat())).status == 200
        go.set()
        while router.app.census()["replica_idle"]:
            await asyncio.sleep(0.002)
        assert (await router.ask(chat())).status == 200
        assert [line["attempts"] for line in await router.log(2)] == [1, 1]


@pytest.mark.parametrize("end", ["fin", "rst"])
@pytest.mark.parametrize(
    "asked",
    [
        chat(padding="a" * 5000),
        chat(padding="a" * 5000, stream=True),
        # An engine may have executed a request to an unknown path, so it is not repeated.
        post_json("/v1/unknown", {"model": "m"}),
    ],
    ids=["large", "large stream", "unknown path"],
)
@scenario
async def test_a_request_that_is_sent_once_goes_on_a_new_connection(asked: bytes, end: str) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        if not await connection.fill():
            return  # The router has closed it.
        if end == "rst":
            connection.rst()
        else:
            connection.close()

    async with running(in_turn(behave, then=json_ok), limits={"retry_body": 4000}) as router:
        assert (await router.ask(chat())).status == 200
        assert router.app.census()["replica_idle"] == 1
        assert (await router.ask(asked)).status == 200
        first, second = router.replica.sessions
        assert (len(first.reader.done), len(second.reader.done)) == (1, 1)
        assert [line["attempts"] for line in await router.log(2)] == [1, 1]


@scenario
async def test_the_new_connection_dies_as_well() -> None:
    """A replica that fails twice for one request is not tried a third time."""

    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        await connection.recv_head()
        connection.rst()

    async def refuse(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        connection.rst()

    async with running(in_turn(behave, then=refuse)) as router:
        assert (await router.ask(chat())).status == 200
        answer = await router.ask(chat())
        assert answer.status == 502
        assert answer.error()["code"] == "replica_reset"
        assert len(router.replica.sessions) == 2


@scenario
async def test_a_hundred_die_at_once() -> None:
    """Each request has at most one more attempt, and there is no burst of reconnects."""
    count, at_once = 100, 8
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await (json_ok if go.is_set() else dies("rst", go))(connection)

    limits = {"connecting": at_once, "pool_idle": count}
    async with running(behave, limits=limits) as router:
        clients = [await router.send(chat()) for _ in range(count)]
        for client in clients:
            assert (await client.recv_response()).status == 200
        go.set()
        for client in clients:
            await client.send(chat())
        most = 0
        waiting = [asyncio.create_task(client.recv_response()) for client in clients]
        while not all(task.done() for task in waiting):
            most = max(most, router.app.census()["replica_connecting"])
            await asyncio.sleep(0)
        assert {task.result().status for task in waiting} == {200}
        assert most <= at_once
        assert all(line["attempts"] <= 2 for line in await router.log(2 * count))
