"""An idle client connection is closed on time, and never with bytes pending."""

import asyncio

from tests.harness.behaviours import answer_after, json_ok
from tests.harness.messages import chat, completion
from tests.harness.running import Router, routed
from tests.harness.virtual_time import takes


@routed(json_ok, virtual=True)
async def test_an_idle_connection_is_closed_without_a_response(router: Router) -> None:
    client = await router.send(chat())
    assert (await client.recv_response()).status == 200
    with takes(75.0):
        await client.expect_silence_then_close()
    assert client.ended == "fin"
    assert len(await router.log()) == 1


@routed(answer_after(180.0, completion()), virtual=True)
async def test_a_long_answer_does_not_count_as_idle(router: Router) -> None:
    client = await router.send(chat())
    assert (await client.recv_response()).status == 200


@routed(json_ok, virtual=True)
async def test_a_busy_connection_is_not_closed(router: Router) -> None:
    client = await router.client()
    for _ in range(3):
        await client.send(chat())
        assert (await client.recv_response()).status == 200
        await asyncio.sleep(74.0)
