"""The body of a request is kept until its stream begins, longer only if it may be sent again."""

import asyncio
from typing import Any

from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario


@scenario
async def test_it_leaves_the_memory_at_the_first_content() -> None:
    await relayed(is_kept=False)


async def relayed(*, is_kept: bool, **settings: Any) -> None:
    """Relay a stream. `is_kept`: the request is kept to the end of the stream."""
    begin, end = asyncio.Event(), asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD)
            await begin.wait()
            await connection.send(chunk(token("a")))
            await end.wait()
            await connection.send(chunk(token("b", "stop")), chunk(DONE), LAST_CHUNK)

    async with running(behave, **settings) as router:
        front = router.app.parts.front
        asked = asyncio.create_task(router.ask(chat(stream=True), "POST"))
        (exchange,) = await exchanges(router.app.parts.dispatcher)
        assert front.held_bytes, "it may have to be sent again"
        begin.set()
        await eventually(lambda: exchange.reply.bytes_out > 0, "the first token")
        assert bool(front.held_bytes) is is_kept
        assert bool(exchange.asked.common) is is_kept, "the header lines for replicas"
        assert (exchange.asked.fields.model is not None) is is_kept, "what was read from the body"
        end.set()
        assert (await asked).complete
        assert not front.held_bytes


async def exchanges(dispatcher: Any) -> list[Any]:
    await eventually(lambda: len(dispatcher.exchanges) == 1, "a request")
    return list(dispatcher.exchanges)
