"""A replica that accepts a request and does not read it: its body counts until it is sent."""

import asyncio

from router.core.errors import Reason
from tests.harness.messages import completion, post_json
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

MB = 1024 * 1024
LARGE = post_json(
    "/v1/chat/completions",
    {"model": "m", "messages": [{"role": "user", "content": "x" * (16 * MB)}]},
)


def held(router: Router) -> int:
    return router.app.parts.front.held_bytes


@scenario
async def test_it_counts_until_the_replica_has_read_it() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await go.wait()
        while await connection.recv_request():
            await connection.send(completion())

    limits = {"bodies_total": 24 * MB, "body": 20 * MB, "retry_body": 1 * MB}
    async with running(behave, limits=limits) as router:
        client, other = await router.client(), await router.client()
        await client.send(LARGE)
        await eventually(lambda: len(router.app.parts.dispatcher.exchanges) == 1, "under way")
        await asyncio.sleep(0.1)
        assert held(router) >= 16 * MB, "the transport holds it"
        await other.send_pieces([LARGE])
        assert_error(await other.recv_response(), Reason.MEMORY_LIMIT)
        go.set()
        assert (await client.recv_response()).status == 200
        await eventually(lambda: not held(router), "it has left")
        assert (await router.ask(LARGE, "POST")).status == 200


@scenario
async def test_a_client_that_leaves_takes_it_along() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await go.wait()

    limits = {"retry_body": 1 * MB}
    async with running(behave, limits=limits) as router:
        client = await router.send(LARGE)
        await eventually(lambda: held(router) >= 16 * MB, "held")
        client.rst()
        await eventually(lambda: not held(router), "gone with its client")
        go.set()
