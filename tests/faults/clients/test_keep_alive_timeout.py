"""An idle client connection is closed on time, and never with bytes pending."""

from __future__ import annotations

import asyncio

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, completion
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario


@scenario
async def test_an_idle_connection_is_closed_without_a_response() -> None:
    async with running(json_ok, timeouts={"keep_alive_s": 0.2}) as router:
        client = await router.client()
        await client.send(chat())
        assert (await client.recv_response()).status == 200
        await client.expect_silence_then_close()
        assert client.ended == "fin"
        assert len(await router.log()) == 1


@scenario
async def test_a_long_answer_does_not_count_as_idle() -> None:
    async def slow(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            for _ in range(5):
                await asyncio.sleep(0.1)
            await connection.send(completion())

    async with running(slow, timeouts={"keep_alive_s": 0.2, "head_s": 0.2}) as router:
        client = await router.client()
        await client.send(chat())
        assert (await client.recv_response()).status == 200


@scenario
async def test_a_busy_connection_is_not_closed() -> None:
    async with running(json_ok, timeouts={"keep_alive_s": 1.0}) as router:
        client = await router.client()
        for _ in range(12):
            await client.send(chat())
            assert (await client.recv_response()).status == 200
            await asyncio.sleep(0.1)
