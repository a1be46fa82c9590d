"""A client that disconnects while its first attempt fails gets no second attempt."""

import asyncio

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario


@scenario
async def test_no_further_attempt() -> None:
    go = asyncio.Event()

    async def fails(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        connection.rst()

    async with running(fails, fails, json_ok, policy="round_robin") as router:
        client = await router.send(chat())
        await eventually(
            lambda: (
                sum(len(replica.requests) for replica in router.replicas[:2]) == 1
                or bool(router.replicas[2].requests)
            ),
            "the first attempt",
        )
        if router.replicas[2].requests:  # the healthy replica was chosen: send again
            await client.recv_response()
            await client.send(chat())
            await eventually(
                lambda: sum(len(replica.requests) for replica in router.replicas[:2]) == 1,
                "an attempt that will fail",
            )
        served = len(router.replicas[2].requests)
        client.rst()
        go.set()  # the attempt fails in the same turn of the loop
        await router.quiet()
        assert sum(len(replica.requests) for replica in router.replicas) == served + 1
        assert router.busy() == {}
