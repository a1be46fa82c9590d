"""A stream is silent while its engine generates, as tool-call parsers do: it is not cut off."""

import asyncio
from collections.abc import Callable

import pytest

from router.config.model import Usage
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, event, post_json, token
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import Router, assert_cut_stream, routed, running, virtual_scenario

GAP_S = 60.0
COMMENT = b": waiting for the next token\n\n"
LINES_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
)


def message_event(text: str) -> bytes:
    """A content event of Anthropic's API."""
    delta = {"type": "text_delta", "text": text}
    return event({"type": "content_block_delta", "index": 0, "delta": delta})


def line(text: str) -> bytes:
    """A line of Ollama's API."""
    return b'{"message":{"role":"assistant","content":"%b"},"done":false}\n' % text.encode()


def silent(head: bytes, piece: Callable[[str], bytes], *, works_s: float) -> Behaviour:
    """Send one piece, then nothing. The engine's totals grow for `works_s` seconds."""

    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(head, chunk(piece("a")))
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + works_s
        while loop.time() < ends_at:
            connection.replica.load.generated += 1
            await asyncio.sleep(1.0)
        if works_s > GAP_S:
            await connection.send(chunk(piece("b")), LAST_CHUNK)
        await connection.expect_close()

    return behave


MESSAGES = {"model": "m", "max_tokens": 9, "stream": True, "messages": []}
CASES = {
    "chat": (chat(stream=True), SSE_HEAD, token),
    "messages": (post_json("/v1/messages", MESSAGES), SSE_HEAD, message_event),
    "lines": (post_json("/api/chat", MESSAGES), LINES_HEAD, line),
}


@pytest.mark.parametrize("case", CASES)
@virtual_scenario
async def test_it_is_not_cut_while_the_engine_works(case: str) -> None:
    asked, head, piece = CASES[case]
    async with running(silent(head, piece, works_s=5 * GAP_S)) as router:
        answer = await router.ask(asked)
        assert answer.complete
        rest = answer.body.replace(COMMENT, b"")
        assert rest == piece("a") + piece("b")
        # Lines of JSON have no comments.
        assert (answer.body != rest) == (case != "lines")
        assert await router.reason() == "ok"


@virtual_scenario
async def test_the_gap_counts_from_the_last_sign_of_work() -> None:
    behave = silent(SSE_HEAD, token, works_s=GAP_S / 2)
    async with running(behave) as router:
        assert_cut_stream(await router.ask(chat(stream=True)), Reason.TOKEN_GAP_TIMEOUT)


@virtual_scenario
async def test_a_working_engine_has_a_limit_too() -> None:
    behave = silent(SSE_HEAD, token, works_s=1800.0)
    async with running(behave, timeouts={"whole_s": 2 * GAP_S}) as router:
        assert_cut_stream(await router.ask(chat(stream=True)), Reason.TOKEN_GAP_TIMEOUT)


@virtual_scenario
async def test_no_comment_is_sent_inside_an_event() -> None:
    half = token("late")

    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a") + half[:20]))
        await connection.expect_close()

    async with running(behave, usage=Usage(inject=False)) as router:
        answer = await router.ask(chat(stream=True))
        assert_cut_stream(answer, Reason.TOKEN_GAP_TIMEOUT)
        assert COMMENT not in answer.body


@virtual_scenario
async def test_comments_are_off_with_the_early_status() -> None:
    behave = silent(SSE_HEAD, token, works_s=0.0)
    async with running(behave, timeouts={"commit_after_s": 0.0}) as router:
        answer = await router.ask(chat(stream=True))
        assert_cut_stream(answer, Reason.TOKEN_GAP_TIMEOUT)
        assert b": waiting" not in answer.body


@virtual_scenario
async def test_a_client_that_leaves_in_the_gap_frees_everything() -> None:
    async with running(silent(SSE_HEAD, token, works_s=1800.0)) as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(COMMENT)
        client.close()
        assert await router.reason() == "client_gone"


@pytest.mark.parametrize("is_early", [False, True])
@virtual_scenario
async def test_event_streams_are_not_buffered_on_the_way(is_early: bool) -> None:
    async def late(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        if is_early:
            await asyncio.sleep(11.0)
        await connection.send(SSE_HEAD, chunk(token("a") + DONE), LAST_CHUNK)

    async with running(late) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.header("x-accel-buffering") == "no"
        assert answer.complete


@routed(json_ok, virtual=True)
async def test_other_answers_are_buffered_as_usual(router: Router) -> None:
    answer = await router.ask()
    assert answer.header("x-accel-buffering") is None
