"""A stream that stalls after its first token is cut by the gap timer, visibly for the client."""

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import stream_then_hang
from tests.harness.messages import SSE_HEAD, chat, chunk, role, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import assert_cut_stream, running, virtual_scenario
from tests.harness.virtual_time import takes


@virtual_scenario
async def test_the_gap_timer_cuts_it() -> None:
    behave = stream_then_hang(role(), token("a"))
    async with running(behave) as router:
        client = await router.send(chat(stream=True))
        with takes(60.0):
            answer = await client.recv_response()
        assert_cut_stream(answer, Reason.TOKEN_GAP_TIMEOUT)
        assert [b'"a"' in event.encode() for event in answer.events()] == [False, True, False]
        assert await client.expect_close()
        (replica,) = router.replica.sessions
        await eventually(lambda: replica.ended is not None, "the replica's connection closed")
        assert await router.reason() == "token_gap_timeout"


@virtual_scenario
async def test_a_plain_response_is_cut_short() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
        await connection.expect_close()

    async with running(behave) as router:
        with takes(60.0):
            answer = await router.ask(b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.status == 200
        assert not answer.complete
        assert answer.body == b"abc"
        assert await router.reason() == "token_gap_timeout"


@virtual_scenario
async def test_the_whole_request_has_a_limit_of_its_own() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        while True:  # never silent, and without an end; the send fails once the router has closed
            await connection.send(chunk(token("drop")))
            await asyncio.sleep(1.0)

    async with running(behave, timeouts={"total_s": 90.0}) as router:
        with takes(90.0):
            answer = await router.ask(chat(stream=True))
        assert_cut_stream(answer, Reason.TOTAL_TIMEOUT)
        assert await router.reason() == "total_timeout"
